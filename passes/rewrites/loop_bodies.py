"""Reading the attributes and bodies of Loop and Scan."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import is_operator


def each_integer(node: ir.Node, name: str, count: int) -> Sequence[int]:
    """Return an attribute that has an integer for each input or output; zeros where it is left out.

    Args:
        node: A Loop or Scan.
        name: The name of the attribute.
        count: How many integers there are.
    """
    attribute = node.attributes.get(name)
    return [0] * count if attribute is None else attribute.as_ints()


def source(value: ir.Value | None) -> ir.Value | None:
    """Return what a value is a copy of; itself where no Identity makes it."""
    while value is not None and is_operator(value.producer(), "Identity"):
        producer = value.producer()
        value = None if producer is None else producer.inputs[0]
    return value
