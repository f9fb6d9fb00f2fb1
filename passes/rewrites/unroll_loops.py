"""Put the steps of a Loop or Scan in its place, where their number is known: no device has loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.domains import qualified
from samba_onnx.passes.rewrites.loop_bodies import each_integer, source
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_constant,
    add_integers,
    each_graph,
    inherit,
    integer_attribute,
    is_operator,
    small_array,
    substitute,
)
from samba_onnx.program.dataflow import subgraphs

if TYPE_CHECKING:
    from samba_onnx.passes.rewrites.expand_functions import Knows

MOST_NODES: Final = 2048
"""Nodes that the steps of one loop may have together: as an LSTM of 128 steps has when it is written in
single operators."""
OLDEST: Final = 13
"""Oldest version of the default operator set in which axes of Unsqueeze are an operand."""
_SEQUENCES: Final = frozenset(
    {"SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "ConcatFromSequence"}
)
"""Operators that no target knows, and that go where the places of their tensors are known."""
_VANISHING: Final = frozenset({"Constant", "Identity", "Shape", "Size"})
"""Operators that go when shapes are known."""


class UnrollLoopsPass(ReasonedPass):
    """Write a Loop or Scan as its steps, one behind the other, as tracing would have.

    1. A Loop has a constant number of steps, and nothing stops it before: its condition and that of its body
       are constantly true, or left out. A Scan reads inputs of known lengths.
    2. There is at least one step, and all steps together have no more than ``MOST_NODES`` nodes.
    3. The target knows every operator of the body, but for those that go when shapes and places of tensors in
       sequences are known; otherwise the loop stays whole for the CPU.
    4. A body that holds a loop or a branch of its own waits until that is gone.
    5. What a step adds to an output of all steps is put together by a Concat.
    """

    def __init__(self, target: Knows) -> None:
        """Keep the target.

        Args:
            target: Says which operators it has.
        """
        super().__init__()
        self.target = target

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Unroll every loop that can be."""
        modified = False
        if model.graph.opset_imports.get("", 0) < OLDEST:
            return ir.passes.PassResult(model, modified=False)
        for graph in reversed(list(each_graph(model))):
            for node in list(graph):
                if is_operator(node, "Loop", "Scan"):
                    modified |= self.refusals.applied(node, self._unroll(model, node))
        return ir.passes.PassResult(model, modified=modified)

    def _unroll(self, model: ir.Model, node: ir.Node) -> Refusal | None:
        body = node.attributes["body"].as_graph()
        refusal = self._unsuitable(body)
        if refusal is not None:
            return refusal
        count = _loop_steps(node, body) if node.op_type == "Loop" else _scan_steps(node, body)
        if isinstance(count, Refusal):
            return count
        # Case 2.
        if count < 1:
            return Refusal("it has no steps")
        if count * (len(body) + 1) > MOST_NODES:
            return Refusal(f"its {count} steps have more than {MOST_NODES} nodes")
        _Steps(model, node, body, count).write()
        return None

    def _unsuitable(self, body: ir.Graph) -> Refusal | None:
        if body.initializers:
            return Refusal("its body has initializers of its own")
        # Case 4.
        if any(True for node in body for _ in subgraphs(node)):
            return Refusal("its body has subgraphs")
        # Case 3.
        unknown = {
            qualified(node.domain, node.op_type) for node in body if not self._goes_or_runs(node)
        }
        if unknown:
            return Refusal(f"the target lacks {', '.join(sorted(unknown))} of its body")
        return None

    def _goes_or_runs(self, node: ir.Node) -> bool:
        if self.target.knows(node.domain, node.op_type):
            return True
        return node.domain == "" and node.op_type in _SEQUENCES | _VANISHING


def _loop_steps(node: ir.Node, body: ir.Graph) -> int | Refusal:
    """Return how many steps a Loop has, or why that is not known (case 1)."""
    most = small_array(node.inputs[0])
    if most is None or most.size != 1:
        return Refusal("the number of its steps is only known at run time")
    condition = node.inputs[1] if len(node.inputs) > 1 else None
    if condition is not None and not _is_true(condition):
        return Refusal("whether it begins is only known at run time")
    again = source(body.outputs[0])
    if again is not body.inputs[1] and not _is_true(again):
        return Refusal("whether it goes on is only known at run time")
    return int(most.ravel()[0])


def _scan_steps(node: ir.Node, body: ir.Graph) -> int | Refusal:
    """Return how many steps a Scan has, or why that is not known (case 1)."""
    count = integer_attribute(node, "num_scan_inputs", 0)
    if len(node.inputs) != len(body.inputs) or not 0 < count <= len(node.inputs):
        return Refusal("it is one of operator set 8, which has batches of its own")
    lengths: set[int] = set()
    axes = each_integer(node, "scan_input_axes", count)
    for value, axis in zip(node.inputs[len(node.inputs) - count :], axes, strict=True):
        shape = None if value is None else value.shape
        length = None if shape is None else shape[axis]
        if not isinstance(length, int):
            return Refusal("the length of what it reads is not known")
        lengths.add(length)
    return lengths.pop() if len(lengths) == 1 else Refusal("its inputs have several lengths")


def _is_true(value: ir.Value | None) -> bool:
    array = small_array(source(value))
    return array is not None and array.size == 1 and bool(array.all())


class _Steps:
    """The steps of a loop while they are written."""

    def __init__(self, model: ir.Model, node: ir.Node, body: ir.Graph, count: int) -> None:
        self._model = model
        self._node = node
        self._body = body
        self._count = count
        self._scans = node.op_type == "Scan"
        reads = integer_attribute(node, "num_scan_inputs", 0)
        first = 0 if self._scans else 2
        self._initial = list(node.inputs[first : len(node.inputs) - reads])
        self._read = list(node.inputs[len(node.inputs) - reads :]) if self._scans else []
        self._nodes: list[ir.Node] = []

    def write(self) -> None:
        """Put the steps in the place of the node."""
        carried = len(self._initial)
        states = self._initial
        written: list[list[ir.Value]] = [[] for _ in self._node.outputs[carried:]]
        for step in range(self._count):
            results = self._step(step, states)
            states = results[:carried]
            for values, result in zip(written, results[carried:], strict=True):
                assert result is not None, "only states may be left out"
                values.append(result)
        together = [self._together(place, values) for place, values in enumerate(written)]
        graph = self._node.graph
        assert graph is not None, "the pass walks the nodes of graphs"
        inherit(self._nodes, self._node)
        graph.insert_before(self._node, self._nodes)
        for output, value in zip(list(self._node.outputs), [*states, *together], strict=True):
            if value is not None:
                substitute(self._node, output, value)
        graph.remove(self._node, safe=True)

    def _step(self, step: int, states: Sequence[ir.Value | None]) -> list[ir.Value | None]:
        """Write one step, and return its states and what it adds to outputs of all steps."""
        values = dict(zip(self._body.inputs, self._operands(step, states), strict=True))
        for node in self._body:
            copy = ir.Node(
                node.domain,
                node.op_type,
                [value if value is None else values.get(value, value) for value in node.inputs],
                list(node.attributes.values()),
                overload=node.overload,
                num_outputs=len(node.outputs),
                version=node.version,
                name=f"{node.name}_{step}" if node.name else None,
                metadata_props=dict(node.metadata_props),
            )
            for old, new in zip(node.outputs, copy.outputs, strict=True):
                new.name = f"{old.name}_{step}" if old.name else old.name
                new.type = old.type
            values |= dict(zip(node.outputs, copy.outputs, strict=True))
            self._nodes.append(copy)
        results = list(self._body.outputs)[0 if self._scans else 1 :]
        return [values.get(value, value) for value in results]

    def _operands(self, step: int, states: Sequence[ir.Value | None]) -> Sequence[ir.Value | None]:
        """Return a value for each input of the body."""
        name = self._node.outputs[0].name
        if not self._scans:
            number = add_constant(self._model, f"{name}_step", np.array(step, np.int64))
            return number, add_constant(self._model, f"{name}_go", np.array(True)), *states
        count = len(self._read)
        axes = each_integer(self._node, "scan_input_axes", count)
        backwards = each_integer(self._node, "scan_input_directions", count)
        parts = []
        for value, axis, back in zip(self._read, axes, backwards, strict=True):
            index = np.array(self._count - 1 - step if back else step, np.int64)
            place = add_constant(self._model, f"{name}_step", index)
            parts.append(self._add("Gather", [value, place], {"axis": axis}))
        return *states, *parts

    def _together(self, place: int, values: Sequence[ir.Value]) -> ir.Value:
        """Return an output of all steps (case 5)."""
        count = len(self._node.outputs) - len(self._initial)
        axis = each_integer(self._node, "scan_output_axes", count)[place]
        if each_integer(self._node, "scan_output_directions", count)[place]:
            values = values[::-1]
        name = f"{self._node.outputs[len(self._initial) + place].name}_axis"
        axes = add_integers(self._model, name, [axis])
        rows = [self._add("Unsqueeze", [value, axes], {}) for value in values]
        return self._add("Concat", rows, {"axis": axis})

    def _add(
        self, op_type: str, inputs: Sequence[ir.Value | None], attributes: dict[str, int]
    ) -> ir.Value:
        node = ir.node(op_type, inputs, attributes)
        self._nodes.append(node)
        output = node.outputs[0]
        first = inputs[0]
        output.name = f"{self._node.outputs[0].name}_{len(self._nodes)}"
        output.type = None if first is None else first.type
        return output
