"""What the outputs of a module are called on the device."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from torch import fx
from torch.utils import _pytree as pytree

from samba_onnx.export.capture.outputs import field_names
from samba_onnx.export.capture.precision import is_widened
from samba_onnx.export.naming import operator_name, scope_name
from samba_onnx.facts.names import joined

__all__ = ["output_name", "output_names"]


def output_names(root: str, outputs: Sequence[Any], out_spec: pytree.TreeSpec) -> list[str]:
    """Return what the flat outputs of a module are called.

    Args:
        root: As ``root_name`` returns it.
        outputs: Nodes of its graph, or values that are no tensors.
        out_spec: How they are nested.

    Returns:
        After the field of the dataclass or the part of the cache that it is in, as ``gpt__logits``; else
        after module, operator and position, as ``output_name`` has it; empty for no tensor.
    """
    names = field_names(out_spec, len(outputs))
    return [
        joined(root, name) if name else output_name(root, node) if isinstance(node, fx.Node) else ""
        for node, name in zip(outputs, names, strict=True)
    ]


def output_name(root: str, node: fx.Node) -> str:
    """Return what an output is called: module, operator and the position among its results.

    Args:
        root: As ``root_name`` returns it.
        node: What the module returns, in a captured graph.
    """
    index = 0
    if is_widened(
        node
    ):  # the module returned what was converted, and names are those of the module
        node = node.args[0]  # type: ignore[assignment]
    while node.target is operator.getitem:
        node, index = node.args[0], node.args[1]  # type: ignore[assignment]
    # An input that is returned as it is has no operator to be named after.
    kind = "identity" if node.op != "call_function" else operator_name(node)
    return joined(scope_name(root, node), kind, "outputs", str(index))
