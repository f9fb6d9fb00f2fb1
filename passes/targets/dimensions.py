"""The options that would make a dynamic shape static."""

from __future__ import annotations

import onnx_ir as ir

EXAMPLE_SIZE = 1
"""The size that hints suggest: what a dimension has unless an option says otherwise."""


def dimension_hint(node: ir.Node, shape: ir.ShapeProtocol) -> str:
    """Return the command-line options that fix the dynamic dimensions of a node's operand.

    Args:
        node: The node; the inputs of its graph are where dimensions can be fixed.
        shape: The operand's shape.

    Returns:
        As ``--dim batch=1 --dim seq=1``, or as ``--input-shape x=1,3`` for nameless dimensions.
        Where a dimension follows from others, all that the graph's inputs have. Empty where every
        input is static: the shape then depends on the data.
    """
    # Dimensions are fixed at the inputs of a whole model; a function or a node on its own has no
    # such option.
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
            # A list instead of a set keeps the order of the inputs, in which users know the
            # dimensions.
            elif dim.value not in names:
                names.append(dim.value)
    own = [dim.value for dim in shape if not isinstance(dim, int)]
    # A name that no input has was computed by shape inference from others (as 2*seq), and so cannot
    # be fixed itself: every input is named below.
    if all(name in names for name in own):
        return " ".join(f"--dim {name}={EXAMPLE_SIZE}" for name in names if name in own)
    options = [f"--dim {name}={EXAMPLE_SIZE}" for name in names]
    options += [_input_shape(value) for value in dict.fromkeys(nameless)]
    return " ".join(options)


def _input_shape(value: ir.Value) -> str:
    dims = (dim if isinstance(dim, int) else EXAMPLE_SIZE for dim in value.shape or ())
    return f"--input-shape {value.name}={','.join(map(str, dims))}"
