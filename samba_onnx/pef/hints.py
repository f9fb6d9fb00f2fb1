"""Hints to SambaFlow's compiler in a PEF: what its author asked for, and has no effect here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

HINTS_KEY: Final = "samba.hints"
"""Key of the hints in the metadata of a PEF."""


def write_hints(hints: Mapping[str, Any]) -> dict[str, str]:
    """Return hints as metadata.

    Args:
        hints: Values by name; one that JSON does not have is kept as its text.

    Returns:
        Nothing without hints.
    """
    # Hints may be any objects of Python; as text they can at least be read.
    return {HINTS_KEY: json.dumps(dict(hints), default=str)} if hints else {}


def describe_hints(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence about the hints of a PEF; none without any.

    Args:
        metadata: The PEF's; a text under the key that is not ours is left out.
    """
    # The user may have written the key as well, or edited it.
    try:
        hints = json.loads(metadata.get(HINTS_KEY, "{}"))
    except ValueError:
        return ()
    if not isinstance(hints, dict) or not hints:
        return ()
    # A flag reads as its name.
    listed = ", ".join(
        name if value is True else f"{name}={json.dumps(value)}" for name, value in hints.items()
    )
    return (f"Hints to SambaFlow's compiler, which have no effect here: {listed}.",)
