"""Which outputs of a session may be written straight into a region that the session also reads.

onnxruntime runs the nodes of a session in any order that their values allow, fuses them, and knows
nothing of regions. So a region may be overwritten in place only if all that happens to its old
value is elementwise arithmetic on the way to the new one; then no order and no fusion reads an
element after it was replaced. Any other output goes through a buffer of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import onnx

from samba_onnx.facts.domains import is_default
from samba_onnx.facts.operators import InPlace, Kind, operators

_IN_PLACE = operators(in_place=[InPlace.OPERAND])
"""Those whose kernels read an element before they write it, whichever operand it is in."""
_ELEMENTWISE = operators(kind=Kind.ELEMENTWISE, in_place=[InPlace.AFTERWARDS, InPlace.OPERAND])
_REDUCTIONS = operators(kind=Kind.REDUCE, in_place=[InPlace.AFTERWARDS])
_SCATTERS = operators(in_place=[InPlace.OVERWRITTEN])
_MOST_OPERANDS = 2
"""Of a kernel that works in place; more are added up in a buffer or in the result."""


def unsafe_outputs(
    model: onnx.ModelProto, overwritten: Mapping[str, Collection[str]]
) -> frozenset[str]:
    """Return the outputs that must not be written where the session's inputs lie.

    Args:
        model: The model of the session as onnxruntime will get it.
        overwritten: The inputs in the region of each output, for outputs that have such; shapes
            and types of all of these are equal.

    Returns:
        Names of outputs for which safety could not be shown.
    """
    if not overwritten:
        return frozenset()
    graph = _Graph(model)
    return frozenset(
        output
        for output, inputs in overwritten.items()
        if not all(graph.may_overwrite(output, name) for name in inputs)
    )


class _Graph:
    """A graph's nodes, by the values that they read and write."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._nodes = list(model.graph.node)
        self._producers = {
            name: index for index, node in enumerate(self._nodes) for name in node.output if name
        }
        self._readers: dict[str, list[int]] = {}
        for index, node in enumerate(self._nodes):
            for name in {*node.input, *_captured(node)}:
                self._readers.setdefault(name, []).append(index)
        self._single: frozenset[str] | None = None

    def may_overwrite(self, output: str, old: str) -> bool:
        producer = self._producers.get(output)
        if producer is None:
            return False
        # Nothing reads the old value, so that there is nothing to lose.
        if not self._readers.get(old):
            return True
        if not self._works_in_place(producer, old):
            return False
        before = self._ancestors(producer)
        pending, seen = [old], {old}
        while pending:
            for reader in self._readers.get(pending.pop(), ()):
                # It was looked at above: it reads each element before it writes it.
                if reader == producer:
                    continue
                node = self._nodes[reader]
                # A reader that the producer does not wait for may run after it. One that is no
                # elementwise arithmetic may need an element when that was replaced already.
                if reader not in before or not self._is_arithmetic(node):
                    return False
                # The one number that a reduction returns needed all of the old value before it was
                # there: what reads that number has nothing to do with the old value any more.
                if node.op_type not in _REDUCTIONS:
                    pending += [name for name in node.output if name not in seen]
                    seen.update(node.output)
        return True

    def _works_in_place(self, producer: int, old: str) -> bool:
        """Return whether the producer may write over this value, should it read it itself."""
        node = self._nodes[producer]
        if not _is_default(node):
            return False
        if node.op_type in _SCATTERS:
            # It overwrites elements of its first operand, while it reads the others.
            reduces = any(item.name == "reduction" and item.s != b"none" for item in node.attribute)
            return not reduces and old not in node.input[1:]
        if old not in node.input:
            return node.op_type in _ELEMENTWISE
        return node.op_type in _IN_PLACE and len(node.input) <= _MOST_OPERANDS

    def _ancestors(self, index: int) -> set[int]:
        ancestors: set[int] = set()
        pending = [index]
        while pending:
            node = self._nodes[pending.pop()]
            for name in {*node.input, *_captured(node)}:
                producer = self._producers.get(name)
                if producer is not None and producer not in ancestors:
                    ancestors.add(producer)
                    pending.append(producer)
        return ancestors

    def _is_arithmetic(self, node: onnx.NodeProto) -> bool:
        if not _is_default(node):
            return False
        if node.op_type in _REDUCTIONS:
            return all(name in self._single_elements() for name in node.output)
        return node.op_type in _ELEMENTWISE

    def _single_elements(self) -> frozenset[str]:
        """Return the values that have one element."""
        if self._single is None:
            self._single = frozenset(_values_of_one_element(self._model))
        return self._single


def _values_of_one_element(model: onnx.ModelProto) -> Iterable[str]:
    try:
        typed = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return  # Nothing is known, so that nothing is safe.
    for value in (*typed.graph.value_info, *typed.graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(size.dim_value == 1 for size in tensor.shape.dim):
            yield value.name


def _is_default(node: onnx.NodeProto) -> bool:
    return is_default(node.domain)


def _captured(node: onnx.NodeProto) -> set[str]:
    """Return all names that a node's subgraphs read, those of their own values included."""
    return {
        name
        for attribute in node.attribute
        for graph in (attribute.g, *attribute.graphs)
        for inner in graph.node
        for name in (*inner.input, *_captured(inner))
    }
