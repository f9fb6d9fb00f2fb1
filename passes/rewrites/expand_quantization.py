"""Compute in floats what a model quantises, where the target has no integers of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.float_twins import WHOLE, Twins, put_before
from samba_onnx.passes.rewrites.lazy_weights import Array
from samba_onnx.passes.rewrites.quantization_scales import exact_numbers, scales_fit, spread
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    WEIGHT,
    add_constant,
    add_initializer,
    add_integers,
    constant,
    folded_name,
    integer_attribute,
    is_operator,
    replace_node,
    static_shape,
    substitute,
)

if TYPE_CHECKING:
    from samba_onnx.passes.rewrites.expand_functions import Knows

_T: Final = ir.DataType
_INTEGERS: Final = frozenset(
    {_T.INT8, _T.UINT8, _T.INT16, _T.UINT16, _T.INT4, _T.UINT4, _T.INT2, _T.UINT2}
)
"""Types of quantised numbers that float32 holds exactly."""
_FLOATS: Final = frozenset({_T.FLOAT, _T.FLOAT16, _T.BFLOAT16})
QUANTIZING: Final = ("Add", "Cast", "Clip", "Div", "Round")
DEQUANTIZING: Final = ("Cast", "Mul", "Sub")


class ExpandQuantizationPass(ReasonedPass):
    """Write QuantizeLinear and DequantizeLinear with the arithmetic that they stand for, in float32.

    1. The target does not run the node as it is, with its types; it knows the operators of the arithmetic.
    2. QuantizeLinear divides, rounds half to even, clips, and adds the zero point; DequantizeLinear
       subtracts the zero point and multiplies. In between are floats that hold whole numbers of few
       bits: exactly what the integers are.
    3. Integers have 16 bits at most; what is scaled back may have 32. float8 and float4 are rounded to
       numbers that these operators do not round to.
    4. Scales are of the whole tensor or of an axis; those of blocks are constants.
    5. Operators in between that only move or choose numbers do so with the floats, too
       (:class:`~samba_onnx.passes.rewrites.float_twins.Twins`). Whoever else reads the integers reads
       a Cast.
    6. A weight that is quantised when the model runs is so when it is written.
    7. Nodes of subgraphs stay: they run on the CPU as they are.
    """

    def __init__(self, target: Knows) -> None:
        """Take the target that decides which nodes are expanded.

        Args:
            target: Says which operators it has, and whether it runs a node.
        """
        super().__init__()
        self.target = target

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Expand every QuantizeLinear and DequantizeLinear that the target lacks."""
        modified, twins = False, Twins(model)
        for node in list(model.graph):
            if is_operator(node, "QuantizeLinear"):
                outcome = self._refused(node, QUANTIZING) or _quantize(model, node, twins)
            elif is_operator(node, "DequantizeLinear"):
                outcome = self._refused(node, DEQUANTIZING) or _dequantize(model, node, twins)
            else:
                continue
            modified |= self.refusals.applied(node, outcome)
        return ir.passes.PassResult(model, modified=modified)

    def _refused(self, node: ir.Node, needed: tuple[str, ...]) -> Refusal | None:
        # Case 1.
        if self.target.runs(node):
            return Refusal("the target runs it as it is")
        unknown = [op_type for op_type in needed if not self.target.knows("", op_type)]
        if unknown:
            return Refusal(f"the target lacks {', '.join(unknown)}, which it is made of")
        if static_shape(node.inputs[0]) is None or node.outputs[0].dtype is None:
            return Refusal("its types or shapes are not known")
        return None


def _quantize(model: ir.Model, node: ir.Node, twins: Twins) -> Refusal | None:
    number, output = node.inputs[0], node.outputs[0]
    scale, zero = node.inputs[1], _operand(node, 2)
    assert number is not None
    # Case 3.
    if output.dtype not in _INTEGERS or number.dtype not in {*_FLOATS, _T.INT32}:
        return Refusal(f"it makes {output.dtype} of {number.dtype}")
    if integer_attribute(node, "precision", 0) not in (0, _T.FLOAT):
        return Refusal("its attribute precision asks for a division that is not of float32")
    folded = _quantized_weight(model, node)
    if folded is None:
        return None
    # Case 4.
    if (scales := _factors(model, node, scale, twins)) is None:
        return Refusal("its scales do not fit, or those of its blocks are computed")
    low, high = _ends(output.dtype)
    shift = constant(zero)
    uniform = zero is None or (shift is not None and len(np.unique(shift.numpy())) == 1)
    point = 0 if shift is None or not uniform else int(shift.numpy().ravel()[0])
    points = None if uniform else _factors(model, node, zero, twins)
    if not uniform and points is None:
        return Refusal("its zero points do not fit, or those of its blocks are computed")
    quotient = put_before(node, "Div", _as_float(node, number), scales)
    whole = put_before(node, "Round", quotient)
    if points is None:
        # Clipped before the zero point comes: a DequantizeLinear of the same one takes it from here.
        whole = _clip(model, node, whole, low - point, high - point)
        whole.meta[WHOLE] = 0
        if point:
            whole = put_before(node, "Add", whole, _number(model, node, point))
            whole.meta[WHOLE] = point
    else:
        whole = _clip(model, node, put_before(node, "Add", whole, points), low, high)
        whole.meta[WHOLE] = 0
    whole.name = f"{output.name}_whole"
    cast = ir.node("Cast", [whole], {"to": int(output.dtype)})
    replace_node(node, cast, cast.outputs)
    return None


def _dequantize(model: ir.Model, node: ir.Node, twins: Twins) -> Refusal | None:
    source, output = node.inputs[0], node.outputs[0]
    scale, zero = node.inputs[1], _operand(node, 2)
    assert source is not None
    # Case 3.
    if output.dtype not in _FLOATS or source.dtype not in {*_INTEGERS, _T.INT32}:
        return Refusal(f"it makes {output.dtype} of {source.dtype}")
    # Case 4.
    scales = _factors(model, node, scale, twins)
    plain = source.dtype == _T.INT32
    points = None if zero is None else _factors(model, node, zero, twins, plain=plain)
    if scales is None or (zero is not None and points is None):
        return Refusal("its scales do not fit, or those of its blocks are computed")
    shift = constant(zero)
    if shift is not None and not shift.numpy().any():
        points = None
    if plain:
        # As onnxruntime does: the difference is one of integers.
        shifted = source if points is None else put_before(node, "Sub", source, points)
        centered = put_before(node, "Cast", shifted, to=int(_T.FLOAT))
    else:
        centered = twins.of(source, node)
        point = None if shift is None or shift.size != 1 else int(shift.numpy().ravel()[0])
        before = _before_zero_point(centered)
        if (
            points is not None
            and point
            and centered.meta.get(WHOLE) == point
            and before is not None
        ):
            centered = before
        elif points is not None:
            centered = put_before(node, "Sub", centered, points)
    if output.dtype == _T.FLOAT:
        last = ir.node("Mul", [centered, scales])
    else:
        product = put_before(node, "Mul", centered, scales)
        last = ir.node("Cast", [product], {"to": int(output.dtype)})
    replace_node(node, last, last.outputs)
    return None


def _before_zero_point(whole: ir.Value) -> ir.Value | None:
    """Return what a zero point was added to."""
    producer = whole.producer()
    return producer.inputs[0] if is_operator(producer, "Add") and producer is not None else None


def _quantized_weight(model: ir.Model, node: ir.Node) -> Refusal | None:
    """Quantise a weight when it is written; say why not."""
    # Case 6.
    weight, scale, zero = node.inputs[0], node.inputs[1], _operand(node, 2)
    tensor, factors, shift = constant(weight), constant(scale), constant(zero)
    if tensor is None or factors is None or (zero is not None and shift is None):
        return Refusal("it is no weight")
    output = node.outputs[0]
    dtype, shape = output.dtype, tuple(tensor.shape.numpy())
    axis, block = integer_attribute(node, "axis", 1), integer_attribute(node, "block_size", 0)
    if dtype is None or not scales_fit(tuple(factors.shape.numpy()), shape, axis, block):
        return Refusal("its scales do not fit")
    low, high = _ends(dtype)

    def compute() -> ir.TensorProtocol:
        scales = spread(factors.numpy().astype(np.float32), shape, axis, block)
        whole = np.rint(tensor.numpy().astype(np.float32) / scales)
        if shift is not None:
            whole = whole + spread(exact_numbers(shift), shape, axis, block)
        return ir.Tensor(np.clip(whole, low, high).astype(dtype.numpy()), dtype=dtype)

    lazy = ir.LazyTensor(compute, dtype=dtype, shape=ir.Shape(shape))
    assert weight is not None
    folded = add_initializer(model, folded_name(output), lazy, weight=bool(weight.meta.get(WEIGHT)))
    substitute(node, output, folded)
    if node.graph is not None:
        node.graph.remove(node, safe=True)
    return None


def _operand(node: ir.Node, position: int) -> ir.Value | None:
    return node.inputs[position] if position < len(node.inputs) else None


def _ends(dtype: ir.DataType) -> tuple[int, int]:
    limits: Any = ml_dtypes.iinfo  # has no types of its own
    ends = limits(dtype.numpy())
    return int(ends.min), int(ends.max)


def _factors(
    model: ir.Model,
    node: ir.Node,
    value: ir.Value | None,
    twins: Twins,
    *,
    plain: bool = False,
) -> ir.Value | None:
    """Return scales or zero points of a node in float32, as they broadcast to what they scale.

    What computes them is put before the node. None stands for such as do not fit, or are computed for blocks;
    with ``plain`` they keep their type.
    """
    shape, scales = static_shape(node.inputs[0]), static_shape(value)
    axis, block = integer_attribute(node, "axis", 1), integer_attribute(node, "block_size", 0)
    if (
        value is None
        or shape is None
        or scales is None
        or not scales_fit(scales, shape, axis, block)
    ):
        return None
    tensor = constant(value)
    if tensor is not None:
        array: Array = tensor.numpy() if plain else tensor.numpy().astype(np.float32)
        if len(np.unique(array)) == 1:
            array = array.ravel()[:1].reshape(())
        else:
            array = spread(array, shape, axis, block)
        return add_constant(model, f"{value.name}_spread", array)
    if block:
        return None
    if not plain:
        value = twins.of(value, node) if value.dtype in _INTEGERS else _as_float(node, value)
    if len(scales) == 1 and not shape:
        return put_before(node, "Reshape", value, add_integers(model, f"{value.name}_shape", []))
    behind = len(shape) - 1 - axis % len(shape) if scales not in ((), (1,)) else 0
    if not behind:
        return value
    axes = add_integers(model, f"{value.name}_axes", list(range(1, behind + 1)))
    return put_before(node, "Unsqueeze", value, axes)


def _as_float(node: ir.Node, value: ir.Value) -> ir.Value:
    return value if value.dtype == _T.FLOAT else put_before(node, "Cast", value, to=int(_T.FLOAT))


def _clip(model: ir.Model, node: ir.Node, value: ir.Value, low: int, high: int) -> ir.Value:
    ends = _number(model, node, low), _number(model, node, high)
    return put_before(node, "Clip", value, *ends)


def _number(model: ir.Model, node: ir.Node, number: int) -> ir.Value:
    return add_constant(model, f"{node.outputs[0].name}_{number}", np.array(number, np.float32))
