"""Functions of torch that are replaced while a block runs, and put back however it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["replaced"]


@contextlib.contextmanager
def replaced(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Let an attribute be another object while the block runs.

    The attribute is changed for the whole process, so that only one thread may capture at a time.

    Args:
        owner: The module or object that has the attribute.
        name: The attribute's name.
        replacement: What the attribute is inside the block.

    Yields:
        Nothing; when the block ends, by an exception too, the attribute is what it was.

    Raises:
        AttributeError: ``owner`` has no such attribute: torch was reorganised.
    """
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)
