"""Builds an ONNX graph value by value, with static shapes and types throughout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from samba_onnx.errors import InternalError
from samba_onnx.export.translation.constants import ConstantPool
from samba_onnx.export.translation.value_types import broadcast, count, element, is_floating, sizes
from samba_onnx.facts.names import FreeNames, joined
from samba_onnx.facts.versions import IR_VERSION, OPSET
from samba_onnx.program.scopes import OWN_SCOPE_KEY

__all__ = [
    "GraphBuilder",
    "Operand",
    "Scalar",
    "broadcast",
    "count",
    "element",
    "is_floating",
    "sizes",
]

Scalar: TypeAlias = bool | int | float
Operand: TypeAlias = ir.Value | Scalar
"""A value, or a number that becomes a constant of the type that it is combined with."""


class GraphBuilder:
    """Appends nodes to a graph; every value that it returns has a static shape and a type.

    Nothing is broadcast or cast unless a method says so. Equal constants are one initializer.
    """

    def __init__(self, name: str) -> None:
        self.graph = ir.Graph([], [], nodes=[], name=name, opset_imports={"": OPSET})
        self.scope = name
        """Prefix of the names of nodes and values that are made from now on."""
        self.metadata: Mapping[str, str] = {}
        """Put on every node that is made from now on: the source line that it comes from."""
        self._names = FreeNames()
        self._constants = ConstantPool(self.graph, self._names)

    def model(self, *, producer: str = "samba-onnx") -> ir.Model:
        """Return the graph as a model; constants that nothing reads are dropped."""
        for value in [v for v in self.graph.initializers.values() if not v.uses()]:
            if not value.is_graph_output():
                del self.graph.initializers[value.name or ""]
        return ir.Model(self.graph, ir_version=IR_VERSION, producer_name=producer)

    def unique(self, name: str) -> str:
        """Return ``name``, with a number behind it if it was used before."""
        return self._names.take(name)

    def available(self, name: str) -> str:
        """Return ``name``, with a number behind it if it is used already; nothing is reserved."""
        return self._names.available(name)

    def input(self, name: str, dtype: ir.DataType, shape: Iterable[int]) -> ir.Value:
        """Add a graph input.

        Args:
            name: Name of the input, which nothing else may have.
            dtype: Type of its elements.
            shape: Sizes of all its axes.
        """
        value = ir.Value(name=self._reserve(name), type=ir.TensorType(dtype), shape=ir.Shape(shape))
        self.graph.inputs.append(value)
        return value

    def output(self, value: ir.Value, name: str) -> ir.Value:
        """Make a value a graph output called ``name``.

        A value that is an input, a constant or an output already reaches it through an Identity.

        Args:
            value: Any value of the graph.
            name: The output's name, which nothing else may have.

        Returns:
            The output.
        """
        self._reserve(name)
        if value.producer() is None or value.is_graph_output():
            value = self.emit("Identity", [value], element(value), sizes(value))
        value.name = name
        self.graph.outputs.append(value)
        return value

    def emit(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        dtype: ir.DataType,
        shape: Iterable[int],
        *,
        domain: str = "",
        **attributes: Any,
    ) -> ir.Value:
        """Append a node with one output.

        Args:
            op_type: The operator.
            inputs: Its operands; None leaves an optional one out.
            dtype: Type of the output.
            shape: Sizes of the output.
            domain: The operator's domain.
            **attributes: The node's attributes; None leaves one out.

        Returns:
            The output.
        """
        return self.emit_several(op_type, inputs, [(dtype, shape)], domain=domain, **attributes)[0]

    def emit_several(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        outputs: Sequence[tuple[ir.DataType, Iterable[int]] | None],
        *,
        domain: str = "",
        **attributes: Any,
    ) -> list[ir.Value]:
        """Append a node with several outputs.

        Args:
            op_type: The operator.
            inputs: Its operands; None leaves an optional one out.
            outputs: Type and sizes of each output; None leaves an optional one out.
            domain: The operator's domain.
            **attributes: The node's attributes; None leaves one out.

        Returns:
            One value per entry of ``outputs``.
        """
        operands = list(inputs)
        while operands and operands[-1] is None:
            operands.pop()
        name = self.unique(joined(self.scope, op_type.lower()))
        results = [
            ir.Value(name="")
            if spec is None
            else ir.Value(
                name=self.unique(joined(name, "outputs", str(index))),
                type=ir.TensorType(spec[0]),
                shape=ir.Shape(spec[1]),
            )
            for index, spec in enumerate(outputs)
        ]
        node = ir.node(
            op_type,
            operands,
            {key: value for key, value in attributes.items() if value is not None},
            domain=domain,
            outputs=results,
            name=name,
        )
        node.metadata_props.update(self.metadata)
        node.metadata_props[OWN_SCOPE_KEY] = self.scope
        if domain and domain not in self.graph.opset_imports:
            self.graph.opset_imports[domain] = 1
        self.graph.append(node)
        return results

    def constant(self, content: Any, dtype: ir.DataType) -> ir.Value:
        """Return a constant.

        Args:
            content: A number, a sequence or an array, which is converted to the type.
            dtype: Type of the constant.

        Returns:
            An initializer, shared by all equal constants.
        """
        return self._constants.value(content, dtype)

    def integers(self, values: Iterable[int]) -> ir.Value:
        """Return a constant list of int64: a shape, axes, bounds."""
        return self.constant(np.array(list(values), np.int64), ir.DataType.INT64)

    def value(self, operand: Operand, dtype: ir.DataType) -> ir.Value:
        """Return an operand as a value of a type: a number as a constant, a value cast if needed."""
        if isinstance(operand, ir.Value):
            return self.cast(operand, dtype)
        return self.constant(operand, dtype)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return a value in another type, as torch converts: anything but zero is true."""
        if element(value) == dtype:
            return value
        return self.emit("Cast", [value], dtype, sizes(value), to=int(dtype))

    def unary(self, op_type: str, value: ir.Value, **attributes: Any) -> ir.Value:
        """Apply an operator that keeps type and shape."""
        return self.emit(op_type, [value], element(value), sizes(value), **attributes)

    def binary(
        self, op_type: str, left: Operand, right: Operand, dtype: ir.DataType | None = None
    ) -> ir.Value:
        """Apply an operator to two operands that are broadcast against each other.

        Args:
            op_type: The operator.
            left: A value or a number; at least one operand is a value.
            right: A value or a number.
            dtype: Type of both operands and the result; that of the first value when None.
        """
        if dtype is None:
            dtype = element(_value_of(left, right))
        one, other = self.value(left, dtype), self.value(right, dtype)
        return self.emit(op_type, [one, other], dtype, broadcast(sizes(one), sizes(other)))

    def add(self, left: Operand, right: Operand) -> ir.Value:
        """Return ``left + right``."""
        return self.binary("Add", left, right)

    def subtract(self, left: Operand, right: Operand) -> ir.Value:
        """Return ``left - right``."""
        return self.binary("Sub", left, right)

    def multiply(self, left: Operand, right: Operand) -> ir.Value:
        """Return ``left * right``."""
        return self.binary("Mul", left, right)

    def divide(self, left: Operand, right: Operand) -> ir.Value:
        """Return ``left / right``; integers are truncated."""
        return self.binary("Div", left, right)

    def compare(self, op_type: str, left: Operand, right: Operand) -> ir.Value:
        """Compare two operands of one type; ``op_type`` is Equal, Less, Greater, ..."""
        dtype = element(_value_of(left, right))
        one, other = self.value(left, dtype), self.value(right, dtype)
        shape = broadcast(sizes(one), sizes(other))
        return self.emit(op_type, [one, other], ir.DataType.BOOL, shape)

    def logical_not(self, value: ir.Value) -> ir.Value:
        """Return the negation of a boolean value."""
        return self.unary("Not", value)

    def where(self, condition: ir.Value, left: Operand, right: Operand) -> ir.Value:
        """Return ``left`` where the condition holds, else ``right``; all are broadcast."""
        dtype = element(_value_of(left, right))
        one, other = self.value(left, dtype), self.value(right, dtype)
        shape = broadcast(sizes(condition), sizes(one), sizes(other))
        return self.emit("Where", [condition, one, other], dtype, shape)

    def reshape(self, value: ir.Value, shape: Iterable[int]) -> ir.Value:
        """Return a value in another shape, all of whose sizes are given."""
        target = tuple(shape)
        if sizes(value) == target:
            return value
        # Zero means "as before" to Reshape unless allowzero is set.
        empty = 1 if 0 in target else None
        operands = [value, self.integers(target)]
        return self.emit("Reshape", operands, element(value), target, allowzero=empty)

    def expand(self, value: ir.Value, shape: Iterable[int]) -> ir.Value:
        """Return a value broadcast to a shape."""
        target = tuple(shape)
        if sizes(value) == target:
            return value
        return self.emit("Expand", [value, self.integers(target)], element(value), target)

    def full(self, shape: Iterable[int], content: Scalar, dtype: ir.DataType) -> ir.Value:
        """Return a constant number in a shape."""
        return self.expand(self.constant(content, dtype), shape)

    def transpose(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """Return a value with its axes in another order; negative axes count from the end."""
        rank = len(sizes(value))
        permutation = [axis % rank for axis in order]
        if permutation == list(range(rank)):
            return value
        shape = [sizes(value)[axis] for axis in permutation]
        return self.emit("Transpose", [value], element(value), shape, perm=permutation)

    def slice(
        self,
        value: ir.Value,
        axis: int,
        start: int,
        end: int,
        step: int = 1,
    ) -> ir.Value:
        """Return a slice along one axis; bounds as of a Python slice, step not zero."""
        shape = list(sizes(value))
        axis %= len(shape)
        taken = range(*slice(start, end, step).indices(shape[axis]))
        if len(taken) == shape[axis] and step == 1:
            return value
        # A bound of -1 that a negative step reaches means "to the beginning", not "the last one".
        stop = taken.stop if taken.stop >= 0 else -shape[axis] - 1
        shape[axis] = len(taken)
        operands = [value, *(self.integers([n]) for n in (taken.start, stop, axis))]
        if step != 1:
            operands.append(self.integers([step]))
        return self.emit("Slice", operands, element(value), shape)

    def concat(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Return values of one type put together along an axis."""
        if len(values) == 1:
            return values[0]
        shape = list(sizes(values[0]))
        axis %= len(shape)
        shape[axis] = sum(sizes(value)[axis] for value in values)
        return self.emit("Concat", values, element(values[0]), shape, axis=axis)

    def split(self, value: ir.Value, parts: Sequence[int], axis: int) -> list[ir.Value]:
        """Return a value cut along an axis into parts of the given sizes."""
        if len(parts) == 1:
            return [value]
        shape = list(sizes(value))
        axis %= len(shape)
        specs = [(element(value), [*shape[:axis], n, *shape[axis + 1 :]]) for n in parts]
        return self.emit_several("Split", [value, self.integers(parts)], specs, axis=axis)

    def pad(
        self,
        value: ir.Value,
        before: Sequence[int],
        after: Sequence[int],
        content: Scalar = 0,
        mode: str = "constant",
    ) -> ir.Value:
        """Return a value with elements added on both ends of every axis.

        Args:
            value: Any value.
            before: Elements to add in front, per axis; negative numbers take away.
            after: Elements to add behind, per axis.
            content: What to add in mode ``constant``.
            mode: ``constant``, ``reflect``, ``edge`` or ``wrap``.
        """
        if not any(before) and not any(after):
            return value
        pairs = zip(sizes(value), before, after, strict=True)
        operands = [value, self.integers([*before, *after])]
        # Zero is what Pad adds without being told.
        if mode == "constant" and content:
            operands.append(self.constant(content, element(value)))
        shape = [size + front + back for size, front, back in pairs]
        return self.emit("Pad", operands, element(value), shape, mode=mode)

    def reduce(
        self,
        op_type: str,
        value: ir.Value,
        axes: Iterable[int] | None = None,
        *,
        keep: bool = False,
    ) -> ir.Value:
        """Reduce along axes.

        Args:
            op_type: ReduceSum, ReduceMean, ReduceMax, ...
            value: Any value.
            axes: Which axes; all when None. None at all leaves the value as it is.
            keep: Whether reduced axes stay, with size one.
        """
        shape = sizes(value)
        chosen = range(len(shape)) if axes is None else sorted({a % len(shape) for a in axes})
        # Without any axis, ONNX would reduce over all of them.
        if not chosen:
            return value
        left = [1 if i in chosen else n for i, n in enumerate(shape) if keep or i not in chosen]
        operands = [value, self.integers(chosen)]
        return self.emit(op_type, operands, element(value), left, keepdims=int(keep))

    def matmul(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Return the matrix product over the last two axes; the others are broadcast."""
        one, other = sizes(left), sizes(right)
        shape = (*broadcast(one[:-2], other[:-2]), one[-2], other[-1])
        return self.emit("MatMul", [left, right], element(left), shape)

    def gather(self, value: ir.Value, indices: ir.Value, axis: int) -> ir.Value:
        """Return the slices along an axis that ``indices`` (int32 or int64) names."""
        shape = sizes(value)
        axis %= len(shape)
        result = (*shape[:axis], *sizes(indices), *shape[axis + 1 :])
        return self.emit("Gather", [value, indices], element(value), result, axis=axis)

    def _reserve(self, name: str) -> str:
        if name in self._names:
            raise InternalError(f"two values are to be called {name!r}: please report this")
        return self._names.take(name)


def _value_of(left: Operand, right: Operand) -> ir.Value:
    for operand in (left, right):
        if isinstance(operand, ir.Value):
            return operand
    raise InternalError("an operator was given two numbers: please report this")
