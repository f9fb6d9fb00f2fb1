"""The option that would make a dynamic dimension static."""

from __future__ import annotations

import onnx_ir as ir

_EXAMPLE = 8


def dimension_hint(node: ir.Node, name: str | None) -> str:
    """Return the command-line option that fixes a dynamic dimension of a node's operand.

    Args:
        node: The node; the inputs of its graph are where dimensions can be fixed.
        name: The dimension's name, None for a nameless one.

    Returns:
        As ``--dim batch=8``, or as ``--input-shape x=8,3`` for nameless dimensions. Where the
        dimension follows from others, all that the graph's inputs have. Empty where every input
        is static: the dimension then depends on the data.
    """
    if not isinstance(node.graph, ir.Graph):
        return ""
    names: list[str] = []
    nameless: list[ir.Value] = []
    for value in node.graph.inputs:
        for dim in value.shape or ():
            if isinstance(dim, int):
                continue
            if dim.value is None:
                nameless.append(value)
            elif dim.value not in names:
                names.append(dim.value)
    if name in names:
        return f"--dim {name}={_EXAMPLE}"
    options = [f"--dim {known}={_EXAMPLE}" for known in names]
    options += [_input_shape(value) for value in dict.fromkeys(nameless)]
    return " ".join(options)


def _input_shape(value: ir.Value) -> str:
    dims = (dim if isinstance(dim, int) else _EXAMPLE for dim in value.shape or ())
    return f"--input-shape {value.name}={','.join(map(str, dims))}"
