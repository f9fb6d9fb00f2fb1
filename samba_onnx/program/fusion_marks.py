"""Marks on nodes that the user wants in one section: ``samba.directives.op_fusion``."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

MARK: Final = "samba.fusion"
"""Key of the metadata of a node; its value is a number, a colon and a name."""
_LONGEST: Final = 200


def write_mark(identity: str, name: str) -> str:
    """Return the metadata of a node.

    Args:
        identity: Without colons; tells uses of one name apart.
        name: What reports call the section.
    """
    # Names come from the user's program and go into every node; reports show no more of them.
    return f"{identity}:{name[:_LONGEST]}"


def read_mark(node: ir.Node) -> tuple[str, str] | None:
    """Return identity and name of a node's mark; None for a node without.

    Args:
        node: Any node.
    """
    text = node.metadata_props.get(MARK)
    if not text:
        return None
    identity, _, name = text[: 2 * _LONGEST].partition(":")
    return identity, name or "op_fusion"
