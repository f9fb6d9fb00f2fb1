"""Attributes and constants with values that make native code trap, run for ever or outgrow memory."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from samba_onnx.errors import InvalidModelError, ModelLimitError
from samba_onnx.facts.domains import normal_domain
from samba_onnx.facts.families import INTEGER_DIVISIONS
from samba_onnx.safety.files import printable
from samba_onnx.safety.limits import Limits
from samba_onnx.safety.tensor_checks import elements_of

__all__ = ["Constants", "check_values"]

_A = onnx.AttributeProto
_T = onnx.TensorProto
_INTEGERS = frozenset({_T.INT8, _T.INT16, _T.INT32, _T.INT64})
_INTEGERS |= {_T.UINT8, _T.UINT16, _T.UINT32, _T.UINT64}
_SMALL = 4096
"""Constants with more elements are data, not parameters, and are not looked at."""

_AT_LEAST_ONE = frozenset(
    {"blocksize", "dilations", "group", "hidden_size", "kernel_shape", "kv_num_heads", "num_groups"}
    | {"num_outputs", "output_height", "output_width", "q_num_heads", "size", "strides"}
)
"""Attributes, of whichever operator of onnx's own, that are divisors or sizes."""
_AXES = frozenset({"axis", "axes", "batch_axis", "batch_dims", "perm", "time_axis"})
_AXES |= {"scan_input_axes", "scan_output_axes"}
_COUNTS = frozenset({"max_skip_count", "max_gram_length", "sampling_ratio", "end", "start"})
_MOST_COUNT = 1 << 20
_EQUATION_TERM = r"[A-Za-z ]*(?:\.\.\.[A-Za-z ]*)?"
_EQUATION = re.compile(rf"({_EQUATION_TERM})(,{_EQUATION_TERM})*(->{_EQUATION_TERM})?")
_LONGEST_EQUATION = 1000
_SIZED_BY_OPERAND = frozenset({"ConstantOfShape", "Expand", "Tile", "OneHot"})
_SIZED_BY_OPERAND |= {"BlackmanWindow", "HammingWindow", "HannWindow"}
_SIZED_BY_FIRST = _SIZED_BY_OPERAND - {"Expand", "Tile", "OneHot"}
_ONE_ENTRY_PER_AXIS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "MaxUnpool": (2,),
    "Pad": (1, 3),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Squeeze": (1,),
    "Tile": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Operands that are vectors with at most two entries for each axis of another tensor."""
_OWN_DOMAINS = frozenset({"", "ai.onnx.ml"})


class Constants:
    """Small integer constants of a graph and the graphs around it."""

    def __init__(self, around: Constants | None = None, shadowed: Iterable[str] = ()) -> None:
        """Begin with what is known ``around``, without names that mean something else here."""
        self._around = around
        # A name of a subgraph's input hides a constant outside.
        self._known: dict[str, onnx.TensorProto | Sequence[int] | None] = dict.fromkeys(shadowed)
        self._lengths: dict[str, int] = {}

    def add_tensor(self, name: str, tensor: onnx.TensorProto) -> None:
        """Enter an initializer, if it may be a parameter."""
        # Lengths of vectors are known also where their content is data or lies outside.
        if len(tensor.dims) == 1:
            self._lengths[name] = tensor.dims[0]
        small = tensor.data_type in _INTEGERS and tensor.data_location != _T.EXTERNAL
        self._known[name] = tensor if small and elements_of(tensor) <= _SMALL else None

    def add_node(self, node: onnx.NodeProto) -> None:
        """Enter the output of a Constant node."""
        if node.op_type != "Constant" or not node.output or not node.attribute:
            return
        attribute = node.attribute[0]
        if attribute.name == "value" and attribute.type == _A.TENSOR:
            self.add_tensor(node.output[0], attribute.t)
        elif attribute.name == "value_int":
            self._known[node.output[0]] = [attribute.i]
        elif attribute.name == "value_ints" and len(attribute.ints) <= _SMALL:
            self._known[node.output[0]] = list(attribute.ints)

    def add_type(self, name: str, declared: onnx.TypeProto.Tensor) -> None:
        """Enter a declared type, for the length of vectors."""
        dims = declared.shape.dim
        if len(dims) == 1:
            self._lengths[name] = dims[0].dim_value

    def length(self, name: str) -> int:
        """Return the stated length of a vector; 0 for everything else."""
        scope: Constants | None = self
        while scope is not None:
            if name in scope._lengths:
                return scope._lengths[name]
            scope = scope._around
        return 0

    def get(self, name: str) -> npt.NDArray[Any] | None:
        """Return the value of a small integer constant; None for everything else."""
        scope: Constants | None = self
        while scope is not None:
            if name in scope._known:
                value = scope._known[name]
                if isinstance(value, onnx.TensorProto):
                    return onnx.numpy_helper.to_array(value)
                return None if value is None else np.asarray(value, np.int64)
            scope = scope._around
        return None


def check_values(node: onnx.NodeProto, constants: Constants, limits: Limits) -> None:
    """Refuse values of attributes and constant operands that are known to do harm.

    Args:
        node: A node that fits its operator's definition.
        constants: What its inputs may name.
        limits: How large a computed tensor may be.

    Raises:
        InvalidModelError: A size or divisor is zero, an axis is impossible, or an integer division
            of constants traps.
        ModelLimitError: A constant operand asks for more elements than ``limits`` allow.
    """
    # Of other domains nobody here knows what their attributes mean.
    if normal_domain(node.domain) not in _OWN_DOMAINS:
        return
    for attribute in node.attribute:
        if attribute.type == _A.INT:
            _check_integers(attribute.name, [attribute.i], limits)
        elif attribute.type == _A.INTS:
            _check_integers(attribute.name, attribute.ints, limits)
            if attribute.name == "shape":
                _check_size(attribute.ints, limits)
        elif attribute.name == "equation":
            _check_equation(attribute.s, len(node.input))
    for position in _ONE_ENTRY_PER_AXIS.get(node.op_type, ()):
        if position < len(node.input) and constants.length(node.input[position]) > 2 * limits.rank:
            raise ModelLimitError(
                f"input {position} has {constants.length(node.input[position])} entries, "
                f"at most {2 * limits.rank} make sense"
            )
    if node.op_type in INTEGER_DIVISIONS:
        _check_division(node, constants)
    elif node.op_type in _SIZED_BY_OPERAND:
        _check_operand(node, constants, limits)
    else:
        _check_arrangement(node, constants, limits)


def _check_arrangement(node: onnx.NodeProto, constants: Constants, limits: Limits) -> None:
    """Refuse values of operands that say how much is made of what."""
    if node.op_type == "Range":
        _check_range(node, constants, limits)
    elif node.op_type == "Split":
        _check_parts(node, constants)


def _check_equation(content: bytes, terms: int) -> None:
    """Refuse an Einsum equation that is none: shape inference never ends on some."""
    text = content.decode("utf-8", "replace")
    # Equations of models have some dozen letters.
    if len(text) > _LONGEST_EQUATION or not _EQUATION.fullmatch(text):
        raise InvalidModelError(f"{printable(text, 60)!r} is no equation")
    operands = text.partition("->")[0].count(",") + 1
    if operands != terms:
        raise InvalidModelError(f"the equation has {operands} terms for {terms} inputs")


def _check_integers(name: str, values: Sequence[int], limits: Limits) -> None:
    if not values:
        return
    if name in _AT_LEAST_ONE and min(values) < 1:
        raise InvalidModelError(f"attribute {name!r} is {min(values)}, expected at least 1")
    # No tensor has an axis beyond the limit of ranks, counted from either end.
    if name in _AXES and not (-limits.rank <= min(values) and max(values) <= limits.rank):
        worst = max(values, key=abs)
        raise InvalidModelError(f"attribute {name!r} is {worst}, which is no axis of any tensor")
    if name in _COUNTS and max(map(abs, values)) > _MOST_COUNT:
        raise ModelLimitError(f"attribute {name!r} is {max(values)}, at most {_MOST_COUNT} is safe")


def _check_division(node: onnx.NodeProto, constants: Constants) -> None:
    """Refuse x / 0 and INT_MIN / -1, which are traps of the processor, on constants."""
    # With fmod it is computed as floats, where nothing traps.
    fmod = any(attribute.name == "fmod" and attribute.i for attribute in node.attribute)
    divisor = constants.get(node.input[1])
    if divisor is None or fmod or not divisor.size:
        return
    if (divisor == 0).any():
        raise InvalidModelError(f"integer division by zero: constant {_name(node.input[1])} has 0")
    dividend = constants.get(node.input[0])
    # Only signed integers have -1 and a smallest number without a positive one.
    if dividend is None or dividend.dtype.kind != "i" or not (divisor == -1).any():
        return
    if (dividend == np.iinfo(dividend.dtype).min).any():
        raise InvalidModelError(
            f"integer division overflows: the smallest integer in constant {_name(node.input[0])} "
            "by -1"
        )


def _check_parts(node: onnx.NodeProto, constants: Constants) -> None:
    """Refuse a Split into another number of parts than it has outputs: inference reads beyond the parts."""
    stated = [item.i for item in node.attribute if item.name == "num_outputs"]
    stated += [len(item.ints) for item in node.attribute if item.name == "split"]
    sizes = constants.get(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    stated += [] if sizes is None else [sizes.size]
    for number in stated:
        if number != len(node.output):
            raise InvalidModelError(f"it has {len(node.output)} outputs for {number} parts")


def _check_operand(node: onnx.NodeProto, constants: Constants, limits: Limits) -> None:
    """Refuse a constant shape, repetition, depth or length that makes a giant tensor."""
    position = 0 if node.op_type in _SIZED_BY_FIRST else 1
    value = constants.get(node.input[position])
    if value is None:
        return
    sizes = [int(item) for item in value.reshape(-1)]
    if node.op_type != "OneHot" and sizes and min(sizes) < 0:
        raise InvalidModelError(
            f"constant {_name(node.input[position])} is {printable(sizes, 60)}, "
            "a size cannot be negative"
        )
    _check_size(sizes, limits)


def _check_range(node: onnx.NodeProto, constants: Constants, limits: Limits) -> None:
    values = [constants.get(name) for name in node.input]
    if any(value is None or value.size != 1 for value in values):
        return
    start, limit, delta = (int(value.item()) for value in values if value is not None)
    if delta == 0:
        raise InvalidModelError("the step of the range is 0")
    # Rounded up without floats, which lose digits of large integers.
    _check_size([max(0, -((start - limit) // delta))], limits)


def _check_size(sizes: Iterable[int], limits: Limits) -> None:
    elements = math.prod(sizes)
    if elements > limits.computed_elements:
        raise ModelLimitError(
            f"it makes a tensor of {elements:.3g} elements, at most {limits.computed_elements} "
            "are safe"
        )


def _name(name: str) -> str:
    return repr(printable(name))
