"""What the values of an exported graph have to do with losses, and whether they can be trained."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, fx

from samba_onnx.export.capture.loss_marks import loss_source
from samba_onnx.export.naming import operator_name

__all__ = ["Kinship", "Provenance", "provenances"]


class Kinship(enum.IntEnum):
    """How close a value is to a loss."""

    NONE = 0
    COMPUTED = 1
    """Something was computed of a loss, as its root or exponential."""
    LOSS = 2
    """A loss returned it, or a value of which it is a selection, a scaling, a sum or a mean."""


@dataclass(frozen=True)
class Provenance:
    """Where a value comes from."""

    kinship: Kinship = Kinship.NONE
    source: str = ""
    """The loss that is closest: the name of its function, module or operator."""
    trains: bool = False
    """Whether gradients of the value reach a parameter."""
    number: int = 0
    """The value's number among those that have to do with losses; two names of one value share it."""
    parts: frozenset[int] = frozenset()
    """Numbers of those that it was made of."""


_Values: TypeAlias = Provenance | tuple[Provenance, ...]
"""The provenance of a value, or of each of several."""

_UNRELATED: Final = Provenance()

_LOSS_OPERATORS: Final = frozenset(
    {
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "kl_div",
        "linear_cross_entropy_batch_chunked",
        "linear_cross_entropy_batch_chunked_no_reduction",
        "nll_loss2d",
        "nll_loss2d_forward",
        "nll_loss_forward",
        "nll_loss_nd",
    }
)
"""Besides every operator whose name ends in ``_loss``: for who calls operators directly."""

# A loss stays a loss, whatever happens to its shape, type, size and sign, and which part is taken.
# Names are those of ``operator_name``, which are the same for operators that write in place.
_OF_FIRST_NAMES: Final = """
    abs alias alias_copy amax amin atleast_1d atleast_2d atleast_3d broadcast_to chunk clamp
    clamp_max clamp_min clip clone constant_pad_nd contiguous cumsum diag diag_embed diagonal div
    divide expand expand_as flatten flip gather index index_select lift_fresh masked_fill
    masked_select max mean median min movedim moveaxis nan_to_num nanmean nansum narrow neg negative
    pad permute positive ravel repeat repeat_interleave reshape reshape_as roll select slice sort
    split split_with_sizes squeeze sum swapaxes swapdims t take take_along_dim tensor_split tile to
    to_copy topk transpose true_divide type_as unbind unflatten unfold unsqueeze view view_as
    """
_OF_FIRST: Final = frozenset(_OF_FIRST_NAMES.split())
_OF_ANY_NAMES: Final = """
    add addcdiv addcmul addmm addmv bmm broadcast_tensors cat column_stack concat concatenate copy
    dot einsum fmax fmin hstack index_add index_copy index_put inner lerp linear masked_scatter matmul
    maximum minimum mm mul multiply mv outer rsub scatter scatter_add stack sub subtract tensordot
    vdot vstack where
    """
_OF_ANY: Final = frozenset(_OF_ANY_NAMES.split())
"""Operators of which any operand may be the loss: what is added to it, or weighs it, is part of it."""

_NO_GRADIENT: Final = "detach"
_GRADIENT_SWITCH: Final = "wrap_with_set_grad_enabled"


def provenances(
    graph: fx.Graph, outputs: Sequence[object], trained: Collection[str]
) -> list[Provenance]:
    """Return where the outputs of a graph come from.

    Args:
        graph: An exported graph, before any decomposition, which may write in place.
        outputs: Nodes of it, or constants.
        trained: Names of the placeholders to differentiate by.

    Returns:
        One per output. Memory that is written has the provenance of all that was written to it.
    """
    placeholders = {
        node.name: Provenance(trains=node.name in trained)
        for node in graph.find_nodes(op="placeholder")
    }
    walk = _Walk(graph, placeholders, itertools.count(1))
    walk.run()
    return [walk.of(output) for output in outputs]


class _Walk:
    """One graph from its first node to its last."""

    def __init__(
        self, graph: fx.Graph, placeholders: Mapping[str, _Values], numbers: Iterator[int]
    ) -> None:
        self._graph = graph
        self._placeholders = placeholders
        self._numbers = numbers
        self._values: dict[fx.Node, _Values] = {}
        self._memory: dict[fx.Node, fx.Node] = {}
        """For a view, the node whose memory it shares."""
        self._written: dict[fx.Node, Provenance] = {}
        """By such a node, all that was written to its memory since."""

    def run(self) -> None:
        for node in self._graph.nodes:
            if node.op == "placeholder":
                self._values[node] = self._placeholders.get(node.name, _UNRELATED)
            elif node.op == "call_function":
                self._call(node)

    def outputs(self) -> tuple[Provenance, ...]:
        returned: Any = self._graph.output_node().args[0]
        nodes = returned if isinstance(returned, list | tuple) else (returned,)
        return tuple(self.of(node) for node in nodes)

    def of(self, operand: object) -> Provenance:
        """Return the provenance of one operand, of all its values together."""
        if not isinstance(operand, fx.Node):
            return _UNRELATED
        # What was written through any view is in all of them.
        memory = self._memory.get(operand, operand)
        own = _each(self._values.get(operand, _UNRELATED))
        return _closest([*own, self._written.get(memory, _UNRELATED)])

    def _call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            self._values[node] = self._part(node)
        elif isinstance(node.target, torch._ops.HigherOrderOperator):
            self._values[node] = self._nested(node)
        else:
            self._values[node] = self._computed(node)
            self._note_memory(node)

    def _part(self, node: fx.Node) -> Provenance:
        source, index = node.args
        assert isinstance(source, fx.Node)
        values = self._values.get(source, _UNRELATED)
        if isinstance(values, tuple) and isinstance(index, int) and index < len(values):
            # The graph that a node calls has the marks that count: these are copies.
            called = isinstance(source.target, torch._ops.HigherOrderOperator)
            return values[index] if called else self._numbered(node, values[index])
        # Which of the results it is cannot be told: any may be the loss.
        return self._numbered(node, _closest(_each(values)))

    def _nested(self, node: fx.Node) -> _Values:
        """Return the provenances of what a graph within the graph returns."""
        inner = _called(node)
        if inner is None:
            return self._any_operand(node)
        names = [placeholder.name for placeholder in inner.find_nodes(op="placeholder")]
        # The graph's own operands are the last; those before say which graph, and how it is called.
        operands = node.args[len(node.args) - len(names) :]
        known = {name: self.of(operand) for name, operand in zip(names, operands, strict=True)}
        walk = _Walk(inner, known, self._numbers)
        walk.run()
        if node.target.name() == _GRADIENT_SWITCH and not node.args[0]:  # type: ignore[union-attr]
            # Under torch.no_grad: what comes out is a number to look at.
            return tuple(_UNRELATED for _ in walk.outputs())
        return walk.outputs()

    def _computed(self, node: fx.Node) -> _Values:
        """Return the provenance of an operator's results."""
        name = operator_name(node)
        if name == _NO_GRADIENT:
            return _UNRELATED
        lists = [operand for operand in node.args if isinstance(operand, list | tuple)]
        results = node.meta.get("val")
        if lists and isinstance(results, list | tuple) and len(lists[0]) == len(results):
            members = [self.of(member) for member in lists[0]]
            # One result per member of a list, as of broadcast_tensors; sizes are no such members.
            if any(isinstance(member, fx.Node) for member in lists[0]):
                return tuple(members)
        return self._numbered(node, self._of_operator(node, name))

    def _numbered(self, node: fx.Node, provenance: Provenance) -> Provenance:
        """Return the provenance of a new value, knowing whether a loss returned it."""
        provenance = _marked(node, provenance)
        # Numbers are for values that have to do with losses alone.
        if provenance.kinship is Kinship.NONE:
            return provenance
        operands = [self.of(operand) for operand in node.all_input_nodes if _is_real(operand)]
        return dataclasses.replace(
            provenance, number=next(self._numbers), parts=_numbers_of(operands)
        )

    def _of_operator(self, node: fx.Node, name: str) -> Provenance:
        every = self._any_operand(node)
        if name in _OF_ANY:
            return every
        first = self.of(node.args[0]) if node.args else _UNRELATED
        if name in _OF_FIRST and first.kinship is Kinship.LOSS:
            return Provenance(Kinship.LOSS, first.source, every.trains)
        # Anything else that is computed of a loss is none itself.
        return Provenance(min(every.kinship, Kinship.COMPUTED), every.source, every.trains)

    def _any_operand(self, node: fx.Node) -> Provenance:
        """Return the closest provenance of all operands that carry gradients: no indices, no masks."""
        return _closest([self.of(operand) for operand in node.all_input_nodes if _is_real(operand)])

    def _note_memory(self, node: fx.Node) -> None:
        """Remember what shares memory with what, and what an operator writes."""
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return
        for argument, operand in zip(schema.arguments, node.args, strict=False):
            # Without it, an operand is only read.
            if argument.alias_info is None or not isinstance(operand, fx.Node):
                continue
            memory = self._memory.get(operand, operand)
            if argument.alias_info.is_write:
                new = (*_each(self._values[node]), self._written.get(memory, _UNRELATED))
                self._written[memory] = _closest(new)
            # Detached values carry no gradient, though they share the memory.
            if operator_name(node) != _NO_GRADIENT:
                self._memory[node] = memory


def _marked(node: fx.Node, provenance: Provenance) -> Provenance:
    """Return a node's provenance, knowing whether a loss returned its value."""
    source = loss_source(node)
    name = operator_name(node)
    if not source and (name.endswith("_loss") or name in _LOSS_OPERATORS):
        source = name
    if not source:
        return provenance
    return Provenance(Kinship.LOSS, source, provenance.trains)


def _closest(provenances: Sequence[Provenance]) -> Provenance:
    """Return the provenance of what has several."""
    # One operand with a gradient is enough, be it the loss or what is beside it.
    trains = any(provenance.trains for provenance in provenances)
    related = [provenance for provenance in provenances if provenance.kinship]
    # The only one keeps its number: it is the same value still.
    if len(related) == 1:
        return dataclasses.replace(related[0], trains=trains)
    closest = max(related, key=lambda one: one.kinship, default=_UNRELATED)
    return Provenance(closest.kinship, closest.source, trains, parts=_numbers_of(related))


def _numbers_of(provenances: Sequence[Provenance]) -> frozenset[int]:
    related = [provenance for provenance in provenances if provenance.kinship]
    # 0 is what has nothing to do with losses.
    return frozenset().union(*(one.parts | {one.number} for one in related)) - {0}


def _each(values: _Values) -> tuple[Provenance, ...]:
    return values if isinstance(values, tuple) else (values,)


def _is_real(node: fx.Node) -> bool:
    """Return whether a node has floating-point or complex values; of several, any."""
    value = node.meta.get("val")
    values: Iterable[Any] = value if isinstance(value, list | tuple) else (value,)
    return any(
        isinstance(one, Tensor) and (one.is_floating_point() or one.is_complex()) for one in values
    )


def _is_graph(operand: object) -> bool:
    return isinstance(operand, fx.Node) and operand.op == "get_attr"


def _called(node: fx.Node) -> fx.Graph | None:
    """Return the graph that a node calls, the first if there are several."""
    owner = node.graph.owning_module
    for operand in node.args:
        if _is_graph(operand) and owner is not None:
            inner = owner.get_submodule(str(operand.target))  # type: ignore[union-attr]
            return inner.graph if isinstance(inner, fx.GraphModule) else None
    return None
