"""Nodes that are to take the place of one node, while they are being written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.passes.rewrites.rewriting import constant, static_shape
from samba_onnx.program.bounds import Bounds
from samba_onnx.program.dataflow import each_node, subgraphs
from samba_onnx.program.intervals import Interval


class CannotExpandError(Exception):
    """A node is beyond the rule of its operator; the text is the reason, read after the node's name."""


class UnknownShapeError(CannotExpandError):
    """A rule needs a type or shape that is not known; it may be when what comes before is expanded."""


class Draft:
    """Writes nodes of the default domain that compute what one node of another domain computes.

    Nothing of it is in the graph until the pass puts it there, so a rule may give up at any point.
    Constants are Constant nodes, which a later pass lifts.
    """

    def __init__(
        self, node: ir.Node, known: Mapping[ir.Value, Interval] = MappingProxyType({})
    ) -> None:
        """Begin a draft, which has no nodes yet.

        Args:
            node: The node that is to be replaced.
            known: Where values of its graph are known to lie.
        """
        self.node = node
        self._known = known
        self.nodes: list[ir.Node] = []
        """The nodes that were written, in topological order."""

    def discard(self) -> None:
        """Drop all nodes that were written, so that they read none of the graph's values any more."""
        # Otherwise values of the graph would count the nodes of the draft among their readers.
        for node in self.nodes:
            for inner in (node, *(one for body in subgraphs(node) for one in each_node(body))):
                for position in range(len(inner.inputs)):
                    inner.replace_input_with(position, None)
        self.nodes.clear()

    def op(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Write a node with one output.

        Args:
            op_type: An operator of the default domain.
            *inputs: Its inputs; None for one that is left out.
            **attributes: Its attributes, as Python values or tensors.

        Returns:
            Its output.
        """
        return self.several(op_type, 1, *inputs, **attributes)[0]

    def several(
        self, op_type: str, count: int, *inputs: ir.Value | None, **attributes: Any
    ) -> Sequence[ir.Value]:
        """Write a node with ``count`` outputs, and return them."""
        node = ir.node(op_type, inputs, attributes or None, num_outputs=count)
        self.nodes.append(node)
        return node.outputs

    def repeated(
        self,
        step: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
        states: Sequence[ir.Value],
        slices: Sequence[ir.Value],
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        """Write a Scan, which executes one body for each element of some values.

        Args:
            step: Writes what one step does: from its states, then an element of each of ``slices``, to its
                next states, then what it adds to each value of all steps. It may use any value of the graph.
            states: The states before the first step.
            slices: What is read element by element, along the first axis unless attributes say otherwise.
            **attributes: Other attributes of the Scan, as ``scan_input_directions``.

        Returns:
            The last states, then the values of all steps.
        """
        inputs = [ir.Value(type=value.type) for value in (*states, *slices)]
        # Nodes that the step writes go into the body, until it is done.
        outside, self.nodes = self.nodes, []
        try:
            # Results of a body are its own, each once: operands and outer values are none.
            results: list[ir.Value] = []
            for value in step(inputs):
                is_own = any(value.producer() is node for node in self.nodes)
                results.append(
                    value if is_own and value not in results else self.op("Identity", value)
                )
            inner, self.nodes = self.nodes, outside
        # The draft's own nodes come back in any case: whoever discards it goes through them.
        finally:
            self.nodes = outside
        body = ir.Graph(inputs, results, nodes=inner, name="step")
        return self.several(
            "Scan",
            len(results),
            *states,
            *slices,
            body=body,
            num_scan_inputs=len(slices),
            **attributes,
        )

    def constant(self, array: NDArray[np.generic]) -> ir.Value:
        """Write a constant of an array's type and shape."""
        return self.tensor(ir.tensor(array))

    def tensor(self, tensor: ir.TensorProtocol) -> ir.Value:
        """Write a constant of a tensor; its type and shape are known at once."""
        value = self.op("Constant", value=tensor)
        value.type = ir.TensorType(tensor.dtype)
        # A shape is needed before inference runs: rules ask about what they have just written.
        value.shape = ir.Shape(list(tensor.shape.numpy()))
        return value

    def integers(self, *numbers: int) -> ir.Value:
        """Write a vector of int64, as shapes and axes are."""
        return self.constant(np.array(numbers, np.int64))

    def scalar(self, number: float, like: ir.Value) -> ir.Value:
        """Write a scalar of the type of an operand of the node.

        Raises:
            CannotExpandError: The operand's type is unknown.
        """
        return self.tensor(ir.tensor(np.array(number, self.dtype(like).numpy())))

    def operand(self, position: int) -> ir.Value:
        """Return an input of the node that its operator needs.

        Raises:
            CannotExpandError: It is left out.
        """
        value = self.optional(position)
        if value is None:
            raise CannotExpandError(f"its input {position} is left out")
        return value

    def optional(self, position: int) -> ir.Value | None:
        """Return an input of the node; None if it is left out."""
        return self.node.inputs[position] if position < len(self.node.inputs) else None

    def refuse_inputs(self, *positions: int) -> None:
        """Give up if one of some inputs is there.

        Raises:
            CannotExpandError: It is.
        """
        for position in positions:
            if self.optional(position) is not None:
                raise CannotExpandError(f"its input {position} has no counterpart in the expansion")

    def refuse_attributes(self, **defaults: Any) -> None:
        """Give up if one of some attributes has another value than the one that can be expanded.

        Args:
            **defaults: The values that can be, which are also the operator's defaults.

        Raises:
            CannotExpandError: One has another.
        """
        for name, default in defaults.items():
            attribute = self.node.attributes.get(name)
            # A stated default is the same as none at all.
            if attribute is not None and attribute.value != default:
                raise CannotExpandError(f"its attribute {name} is {attribute.value}, not {default}")

    def integer(self, name: str, default: int = 0) -> int:
        """Return an attribute that is an integer, or its default."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_int()

    def count(self, name: str) -> int:
        """Return an attribute that counts something of which there is at least one.

        Raises:
            CannotExpandError: It is left out, or below one.
        """
        count = self.integer(name)
        if count < 1:
            raise CannotExpandError(f"its attribute {name} is {count}, not 1 or more")
        return count

    def number(self, name: str, default: float) -> float:
        """Return an attribute that is a float, or its default."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_float()

    def text(self, name: str, default: str) -> str:
        """Return an attribute that is a string, or its default."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_string()

    def list_of(self, name: str) -> list[Any]:
        """Return an attribute that is a list, or an empty one."""
        attribute = self.node.attributes.get(name)
        return [] if attribute is None else list(attribute.value)

    def floats(self, name: str) -> NDArray[np.float32]:
        """Return an attribute that is a list of floats."""
        return np.array(self.list_of(name), np.float32)

    def dtype(self, value: ir.Value) -> ir.DataType:
        """Return the type of an operand.

        Raises:
            UnknownShapeError: It is unknown.
        """
        if value.dtype is None:
            raise UnknownShapeError(f"the type of {value.name!r} is unknown")
        return value.dtype

    def interval(self, value: ir.Value) -> Interval:
        """Return where an operand lies whatever the inputs of the model; all numbers if nothing is known."""
        return Bounds(self._known, by_type=True).of(value)

    def rank(self, value: ir.Value) -> int:
        """Return the number of dimensions of an operand.

        Raises:
            UnknownShapeError: It is unknown.
        """
        if value.shape is None:
            raise UnknownShapeError(f"the rank of {value.name!r} is unknown")
        return len(value.shape)

    def size(self, value: ir.Value, axis: int) -> int:
        """Return the size of one dimension of an operand.

        Raises:
            UnknownShapeError: It is unknown.
        """
        # Python's index would take an axis from the wrong end, or fail, for one that the operand
        # lacks.
        rank = self.rank(value)
        size = value.shape[axis] if value.shape is not None and -rank <= axis < rank else None
        if not isinstance(size, int):
            raise UnknownShapeError(f"dimension {axis} of {value.name!r} is not static")
        return size

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        """Return the shape of an operand.

        Raises:
            UnknownShapeError: It is not static.
        """
        shape = static_shape(value)
        if shape is None:
            raise UnknownShapeError(f"the shape of {value.name!r} is not static")
        return shape

    def known(self, value: ir.Value, what: str) -> ir.TensorProtocol:
        """Return the content of a constant operand.

        Args:
            value: The operand.
            what: How the reason calls it.

        Raises:
            CannotExpandError: It is no constant.
        """
        tensor = constant(value)
        if tensor is None:
            raise CannotExpandError(f"{what} {value.name!r} is not constant")
        return tensor

    def known_number(self, value: ir.Value, what: str) -> Any:
        """Return the content of a constant operand of one element, as a Python number.

        Args:
            value: The operand.
            what: How the reason calls it.

        Raises:
            CannotExpandError: It is no constant, or has several elements.
        """
        tensor = self.known(value, what)
        if tensor.size != 1:
            raise CannotExpandError(f"{what} {value.name!r} is not one number")
        return tensor.numpy().item()

    def axis(self, value: ir.Value, axis: int) -> int:
        """Return an axis of an operand, counted from the front.

        Raises:
            CannotExpandError: The operand has no such axis.
            UnknownShapeError: The operand's rank is unknown.
        """
        rank = self.rank(value)
        if not -rank <= axis < rank:
            raise CannotExpandError(f"{value.name!r} of {rank} dimensions has no axis {axis}")
        return axis % rank

    def is_read(self, position: int) -> bool:
        """Return whether anything reads an output of the node."""
        if position >= len(self.node.outputs):
            return False
        output = self.node.outputs[position]
        return bool(output.uses()) or output.is_graph_output()


def own_outputs(draft: Draft, results: Sequence[ir.Value | None]) -> list[ir.Value | None]:
    """Return a value for each output of a draft's node, each computed by a node of its own.

    Args:
        draft: What was written.
        results: What its rule returned.
    """
    outputs: list[ir.Value | None] = []
    for position in range(len(draft.node.outputs)):
        value = results[position] if position < len(results) else None
        # The pass gives outputs of the node to these values, which therefore must be new and
        # distinct.
        if value is not None and (value in outputs or value.producer() not in draft.nodes):
            value = draft.op("Identity", value)
        outputs.append(value)
    return outputs
