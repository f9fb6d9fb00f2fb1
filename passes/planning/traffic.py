"""What of its values a section really reads and writes: rows of a table, updates of what stays in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from samba_onnx.facts.operators import facts
from samba_onnx.facts.records import Kind
from samba_onnx.passes.planning.products import looked_up
from samba_onnx.passes.planning.sizes import value_bytes

__all__ = ["moved_bytes"]


def moved_bytes(nodes: Sequence[ir.Node], place: Callable[[ir.Value], str]) -> dict[ir.Value, int]:
    """Return the values that a section does not read or write as a whole, with the bytes that it does.

    Args:
        nodes: The section's nodes.
        place: The region of a value.

    Returns:
        Tables of which only rows are looked up. Then what is overwritten in its place: only the updates are
        written, and what nobody in the section reads is not read.
    """
    return {**_tables(nodes), **_overwritten(nodes, place)}


def _tables(nodes: Sequence[ir.Node]) -> dict[ir.Value, int]:
    tables: dict[ir.Value, int] = {}
    whole: set[ir.Value] = set()
    for node in nodes:
        table = looked_up(node)
        whole.update(v for v in node.inputs if v is not None and v is not table)
        if table is not None:
            tables[table] = tables.get(table, 0) + (value_bytes(node.outputs[0]) or 0)
    return {
        table: rows
        for table, rows in tables.items()
        if table not in whole and rows < (value_bytes(table) or 0)
    }


def _overwritten(nodes: Sequence[ir.Node], place: Callable[[ir.Value], str]) -> dict[ir.Value, int]:
    inside, found = set(nodes), dict[ir.Value, int]()
    for node in nodes:
        row = facts(node.op_type, node.domain)
        if row is None or row.kind is not Kind.OVERWRITE or len(node.inputs) < 3:
            continue
        old, new, updates = node.inputs[0], node.outputs[0], node.inputs[2]
        if old is None or updates is None or place(old) != place(new):
            continue
        found[new] = value_bytes(updates) or 0
        readers = [user for value in (old, new) for user, _ in value.uses() if user in inside]
        if readers == [node]:
            found[old] = 0
    return found
