"""Evaluate one node on constant operands: numpy only, sizes known before anything is allocated."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.facts.families import INTEGER_DIVISIONS, SIZES
from samba_onnx.facts.operators import Kind, operators
from samba_onnx.passes.rewrites.refusals import Refusal

Array = NDArray[Any]

LARGEST_RESULT = 1 << 20
"""Bytes of a folded tensor that takes more space than its operands did."""
MOST_WORK = 512
"""Multiplications per element of the largest product that is computed."""

# Casts spread nothing: the second operand of CastLike is asked for its type only.
ELEMENTWISE = operators(kind=Kind.ELEMENTWISE, foldable=True) - {"Cast", "CastLike"}
"""Operators that are folded and spread their operands to a common shape."""
FOLDABLE = operators(foldable=True)
"""Operators that are folded: deterministic, and the same in numpy as in every runtime."""
GROWING = (operators(kind=Kind.CREATE, foldable=True) - SIZES) | {
    "Expand",
    "Gather",
    "GatherND",
    "MatMul",
    "Tile",
}
"""Foldable operators whose result may have more elements than their operands; see ``_grown``."""


def evaluate(
    node: ir.Node, operands: Sequence[Array | None], version: int
) -> list[Array] | Refusal:
    """Return the node's outputs, or why it must stay as it is.

    Args:
        node: A node without subgraphs of an operator in ``FOLDABLE``.
        operands: Content of its inputs; None for one that is left out.
        version: Version of the default operator set.
    """
    present = [item for item in operands if item is not None]
    # Traps are looked for first: numpy wraps around or warns where a runtime may stop.
    if _traps(node, present):
        return Refusal("it would divide by zero, overflow, or is undefined for these operands")
    if any(item.is_ref() for item in node.attributes.values()):
        return Refusal("an attribute is a parameter of a function")
    # An operand of a few bytes may ask for a result of gigabytes, as the shape of an Expand.
    if not _stays_small(node, present):
        return Refusal("its result would take too much space")
    from onnx.reference.ops import load_op

    attributes = {
        name: ir.serde.serialize_tensor(item.as_tensor())
        if item.type == ir.AttributeType.TENSOR
        else item.value
        for name, item in node.attributes.items()
    }
    # Infinities and NaN are results like others, here as in a runtime.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = load_op(node.domain, node.op_type, version).eval(*operands, **attributes)
        except Exception as error:  # whatever the evaluator fails of, the node can run instead
            return Refusal(f"it cannot be evaluated: {str(error) or repr(error)}")
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    return _checked(node, results)


def _checked(node: ir.Node, results: list[Any]) -> list[Array] | Refusal:
    """Return the results as arrays, or how they contradict what is known of the outputs."""
    if len(results) != len(node.outputs):
        return Refusal("it evaluates to another number of outputs")
    for result, output in zip(results, node.outputs, strict=True):
        if not isinstance(result, (np.ndarray, np.generic)):
            return Refusal("it evaluates to something other than arrays")
        # The evaluator of a newer onnx, or a model that states a wrong type: the node stays and
        # decides itself.
        if output.dtype is not None and result.dtype != output.dtype.numpy():
            return Refusal("it evaluates to another type than its output has")
        shape = output.shape
        if shape is not None and (
            len(shape) != result.ndim
            or any(
                isinstance(dim, int) and dim != size
                for dim, size in zip(shape, result.shape, strict=True)
            )
        ):
            return Refusal("it evaluates to another shape than its output has")
    return [np.asarray(result) for result in results]


def _traps(node: ir.Node, operands: Sequence[Array]) -> bool:
    """Return whether the operation would trap or is undefined for these operands."""
    if node.op_type in INTEGER_DIVISIONS:
        return len(operands) != 2 or _division_traps(*operands)
    return node.op_type in ("Cast", "CastLike") and _cast_is_undefined(node, operands[0])


def _division_traps(left: Array, right: Array) -> bool:
    if not np.issubdtype(right.dtype, np.integer):
        return False
    if (
        left.dtype != right.dtype
    ):  # which no operator divides; numpy would compute in some third type
        return True
    if (right == 0).any():
        return True
    # The one quotient that its type cannot hold.
    lowest = np.iinfo(left.dtype).min
    return bool((right == -1).any() and (left == lowest).any())


def _cast_is_undefined(node: ir.Node, source: Array) -> bool:
    """Return whether numbers would be cast to an integer type that cannot hold them."""
    target = node.outputs[0].dtype
    if target is None or target.is_string():
        return True
    if not target.is_integer():
        return False
    # numpy has no range of integers of fewer than 8 bits to compare with.
    if target.bitwidth < 8:
        return True
    # Text is read by the evaluator, which refuses what is no number.
    if source.dtype.kind in "biuOSU":
        return False
    limits = np.iinfo(target.numpy())
    # float64 holds every limit of 32 bits; the limit of int64 is rounded up, so that the comparison
    # is strict.
    wide = source.astype(np.float64)
    return not bool(
        np.isfinite(wide).all() and (wide >= limits.min).all() and (wide < limits.max).all()
    )


def _stays_small(node: ir.Node, operands: Sequence[Array]) -> bool:
    """Return whether the result takes at most ``LARGEST_RESULT``, or cannot outgrow its operands.

    Nothing is allocated to find out.
    """
    if node.op_type not in ELEMENTWISE and node.op_type not in GROWING:
        return True
    try:
        elements = _grown(node, operands)
    except (ValueError, IndexError, OverflowError, ZeroDivisionError):
        return False
    # At least 8 bytes for an element: results may be wider than operands.
    width = max(8, *(item.itemsize for item in operands))
    return 0 <= elements * width <= LARGEST_RESULT


def _grown(node: ir.Node, operands: Sequence[Array]) -> int:
    """Return an upper bound for the elements of an output that may be larger than the operands."""
    if node.op_type == "ConstantOfShape":
        return math.prod(int(dim) for dim in operands[0].ravel())
    if node.op_type == "Expand":
        shape = tuple(int(dim) for dim in operands[1].ravel())
        return math.prod(np.broadcast_shapes(operands[0].shape, shape))
    if node.op_type == "Tile":
        return operands[0].size * math.prod(int(count) for count in operands[1].ravel())
    if node.op_type == "Range":
        start, stop, step = (float(item.item()) for item in operands)
        # A step of 0 is caught by the caller as a division by zero.
        return max(0, math.ceil((stop - start) / step))
    if node.op_type == "Gather":
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
        data, indices = operands
        return int(indices.size * (data.size // max(1, data.shape[axis])))
    if node.op_type == "GatherND":
        data, indices = operands
        batch = node.attributes["batch_dims"].as_int() if "batch_dims" in node.attributes else 0
        found = math.prod(data.shape[batch + indices.shape[-1] :])
        return math.prod(indices.shape[:-1]) * found
    if node.op_type == "MatMul":
        left, right = operands
        work = left.size * right.size  # at least: of a result that is not broadcast
        return int(work // max(1, min(left.shape[-1], MOST_WORK)))
    return math.prod(np.broadcast_shapes(*(item.shape for item in operands)))
