"""YAML of unknown origin: read whole, within limits, with every key that a mapping states twice.

A few bytes of YAML can stand for gigabytes, by aliases of aliases, or for a value that contains itself.
Therefore the document is first composed into nodes, which are counted as often as they are referred to,
and only then made into values, by the safe loader: no tag of it constructs an object.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from samba_onnx.errors import UsageError
from samba_onnx.safety.files import open_regular, printable

MOST_BYTES: Final = 1 << 18
"""A file that people write is a few pages."""
MOST_NODES: Final = 50_000
"""Scalars, lists and mappings of a document, those behind aliases as often as they are used."""
MOST_NESTED: Final = 16
"""Lists and mappings inside each other."""


@dataclass(frozen=True)
class YamlDocument:
    """A file of YAML."""

    content: Any
    """Mappings, lists and scalars; None for an empty file."""
    repeated: tuple[tuple[tuple[str, ...], int], ...] = ()
    """Path of every key that a mapping states again, with the line of the repetition; YAML's readers let
    the last one count."""


def read_yaml(path: str | os.PathLike[str], what: str) -> YamlDocument:
    """Read a file of YAML.

    Args:
        path: The file.
        what: The word for it in messages, as ``file of fusion rules``.

    Returns:
        Its one document.

    Raises:
        UsageError: It cannot be read, is no YAML, holds several documents, or exceeds a limit.
    """
    path = Path(path)
    label = f"{what} {printable(path)}"
    with open_regular(path, what=what, error=UsageError) as file:
        # A byte more than is allowed tells a file that is too large, without reading it.
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UsageError(f"{label} is larger than {MOST_BYTES:,} bytes", path=path)
    try:
        loader = yaml.SafeLoader(content.decode())
        try:
            root = loader.get_single_node()
            survey = _Survey()
            if root is not None:
                survey.visit(root, ())
            value = None if root is None else loader.construct_document(root)
        finally:
            loader.dispose()
    except _RefusedError as error:
        raise UsageError(f"{label} cannot be used: {error}", path=path) from None
    except RecursionError:
        raise UsageError(f"{label} nests deeper than {MOST_NESTED} levels", path=path) from None
    except (AttributeError, LookupError):  # what the loader itself fails with there
        reason = "a value does not fit its tag, as in '!!bool 3'"
        raise UsageError(f"{label} is no valid YAML: {reason}", path=path) from None
    except (ValueError, TypeError, OverflowError, yaml.YAMLError) as error:
        reason = printable(" ".join(str(error).split()), 300)
        raise UsageError(f"{label} is no valid YAML: {reason}", path=path) from None
    return YamlDocument(value, tuple(survey.repeated))


class _RefusedError(ValueError):
    """A document that is YAML, and more than is read of it."""


@dataclass
class _Survey:
    """What a walk over the nodes of a document finds."""

    count: int = 0
    repeated: list[tuple[tuple[str, ...], int]] = field(default_factory=list)

    def visit(self, node: yaml.Node, path: tuple[str, ...]) -> None:
        """Count a node and all below it, and note keys that are stated twice."""
        # Counted at each visit, so that aliases count as often as they are used.
        self.count += 1
        if self.count > MOST_NODES:
            raise _RefusedError(f"it stands for more than {MOST_NODES:,} values")
        if len(path) > MOST_NESTED:
            raise _RefusedError(f"it nests deeper than {MOST_NESTED} levels")
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.visit(item, (*path, str(index)))
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                # A key that is a list or mapping could not be hashed.
                if not isinstance(key, yaml.ScalarNode):
                    raise _RefusedError(f"line {key.start_mark.line + 1} has a key that is no text")
                if key.value in keys:
                    self.repeated.append(((*path, key.value), key.start_mark.line + 1))
                keys.add(key.value)
                self.visit(value, (*path, key.value))
