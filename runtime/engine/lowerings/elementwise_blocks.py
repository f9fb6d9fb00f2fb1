"""Finds the arithmetic on equal tensors in a graph that may be executed block by block.

An optimizer's step is some nodes per parameter, again and again. Executed node by node over whole
parameters, every intermediate value goes to main memory and back; block by block it stays in the
cache. All operators here round each result as IEEE 754 says, so that the numbers are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from samba_onnx.facts.domains import is_default
from samba_onnx.facts.operators import Kind, operators
from samba_onnx.runtime.engine.lowerings.bfloat16 import lower_bfloat16, uses_bfloat16
from samba_onnx.runtime.engine.lowerings.nodes import Shape, declared_shape
from samba_onnx.runtime.engine.lowerings.stage_model import Component, StageModel
from samba_onnx.runtime.engine.overwriting import unsafe_in_place
from samba_onnx.runtime.memory import DeviceMemory

_EXACT = operators(kind=Kind.ELEMENTWISE, same_bits=True) | {"Identity"}
"""Operators whose kernels give the same bits wherever an element lies."""
_DIMENSION = "n"


@dataclass(frozen=True)
class Split:
    """A graph, taken apart."""

    components: tuple[Component, ...]
    rest: onnx.ModelProto | None
    """A model of everything else; None if there is nothing."""


def take_out_components(stage: StageModel) -> None:
    """Take the arithmetic on equal tensors out of a stage that may be split.

    Args:
        stage: Is changed in place: components are its own, the rest is its model.
    """
    if not stage.splits or stage.memory is None:
        return
    split = split_elementwise(
        stage.model, stage.memory.region, functools.partial(may_be_blocked, stage.memory)
    )
    stage.components = split.components
    stage.model = split.rest or onnx.ModelProto(
        ir_version=stage.model.ir_version, opset_import=stage.model.opset_import
    )


def may_be_blocked(memory: DeviceMemory, component: Component) -> bool:
    """Return whether blocks of a component may be written where its inputs lie.

    Args:
        memory: Where inputs and outputs live.
        component: What was found in a step's model.
    """
    # A block begins at the address of an element, which elements that share a byte lack.
    if any(memory.tensor(name).element.packs for name in (*component.inputs, *component.outputs)):
        return False
    model = onnx.ModelProto()
    model.CopyFrom(component.model)
    if uses_bfloat16(model):
        lower_bfloat16(model)
    return not unsafe_in_place(model, memory, component.inputs, component.outputs)


def split_elementwise(
    model: onnx.ModelProto,
    region: Callable[[str], str],
    suits: Callable[[Component], bool] = lambda _: True,
) -> Split:
    """Take a graph apart.

    Args:
        model: Is not changed.
        region: Returns where an input or output of the graph lives.
        suits: Whether a component shall be one; if not, it belongs to the rest.

    Returns:
        Components in the graph's order, each of which reads and writes regions that no other one
        writes. Without components the rest is the model itself.
    """
    graph = _Graph(model)
    components: list[Component] = []
    left: list[int] = []
    for members in graph.groups(region):
        component = graph.component(members)
        if component is None or not suits(component):
            left += members
        else:
            components.append(component)
    if not components:
        return Split((), model)
    return Split(tuple(components), graph.model_of(left) if left else None)


class _Graph:
    """A graph's nodes with the shapes of their values, as far as arithmetic tells them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._nodes = list(model.graph.node)
        self._inputs = {value.name: value for value in model.graph.input}
        self._outputs = {value.name: value for value in model.graph.output}
        self._initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self._producers = {name: i for i, node in enumerate(self._nodes) for name in node.output}
        self._shapes: dict[str, Shape | None] = {
            **{name: declared_shape(value) for name, value in self._inputs.items()},
            **{name: tuple(tensor.dims) for name, tensor in self._initializers.items()},
        }
        for node in self._nodes:
            shape = self._result_shape(node)
            self._shapes.update(dict.fromkeys(node.output, shape))
        self._scalar = [self._is_scalar(node) for node in self._nodes]

    def groups(self, region: Callable[[str], str]) -> list[list[int]]:
        """Return the nodes, scalar ones excepted, that hang together by values or regions."""
        # Only optimizers need it, and it takes a while to load.
        from networkx.utils import UnionFind

        group: UnionFind[int] = UnionFind()
        owners: dict[str, int] = {}
        written = {region(name) for name in self._outputs}
        for index, node in enumerate(self._nodes):
            if self._scalar[index]:
                continue
            for name in (*node.input, *node.output):
                keys = [name] if self._links(name) else []
                if name in self._inputs or name in self._outputs:
                    # What is written must not be read or written by another component, which may run
                    # before or at the same time. The space keeps regions apart from values' names.
                    keys += [f" {region(name)}"] if region(name) in written else []
                for key in keys:
                    group.union(owners.setdefault(key, index), index)
        members: dict[int, list[int]] = {}
        for index in range(len(self._nodes)):
            if not self._scalar[index]:
                members.setdefault(group[index], []).append(index)
        return list(members.values())

    def component(self, members: Sequence[int]) -> Component | None:
        """Return a group as a component, if it is one."""
        nodes = [self._nodes[index] for index in self._with_scalars(members)]
        if not all(node.op_type in _EXACT and _is_plain(node) for node in nodes):
            return None
        shapes = {self._shapes[name] for index in members for name in self._nodes[index].output}
        shape = shapes.pop() if len(shapes) == 1 else None
        if not shape:
            return None
        names = {name for node in nodes for name in (*node.input, *node.output)}
        if any(self._shapes.get(name) not in ((), shape) for name in names - {""}):
            return None
        # A constant with dimensions would have to be cut into blocks as well, while all blocks of
        # a component share one model.
        if any(self._shapes[name] for name in names & self._initializers.keys()):
            return None
        return self._canonical(nodes, shape)

    def model_of(self, members: Sequence[int]) -> onnx.ModelProto:
        """Return a model of some groups, with names as they are."""
        nodes = [self._nodes[index] for index in self._with_scalars(members)]
        read = {name for node in nodes for name in (*node.input, *_captured(node))}
        results = {name for node in nodes for name in node.output}
        part = onnx.ModelProto()
        part.CopyFrom(self._model)
        for values, names in (
            (part.graph.input, read),
            (part.graph.initializer, read),
            (part.graph.output, results),
        ):
            chosen = [value for value in values if value.name in names]
            del values[:]
            values.extend(chosen)
        del part.graph.node[:]
        part.graph.node.extend(nodes)
        return part

    def _canonical(self, nodes: Sequence[onnx.NodeProto], shape: Shape) -> Component:
        model = onnx.ModelProto(
            ir_version=self._model.ir_version, opset_import=self._model.opset_import
        )
        graph = model.graph
        graph.name = "block"
        # Values are numbered, so that the same arithmetic on other parameters is the same bytes:
        # equal components share a session.
        names: dict[str, str] = {}
        inputs: list[str] = []
        outputs: list[str] = []
        for node in nodes:
            for name in node.input:
                if name and name not in names:
                    names[name] = f"v{len(names)}"
                    if name in self._inputs:
                        inputs.append(name)
                        graph.input.append(self._vector(self._inputs[name], names[name]))
                    else:
                        tensor = graph.initializer.add()
                        tensor.CopyFrom(self._initializers[name])
                        tensor.name = names[name]
            for name in node.output:
                names[name] = f"v{len(names)}"
                if name in self._outputs:
                    outputs.append(name)
                    graph.output.append(self._vector(self._outputs[name], names[name]))
            copy = graph.node.add(op_type=node.op_type, attribute=node.attribute)
            copy.input.extend(names.get(name, "") for name in node.input)
            copy.output.extend(names[name] for name in node.output)
        scalars = frozenset(name for name in inputs if self._shapes[name] == ())
        return Component(model, tuple(inputs), tuple(outputs), scalars, shape)

    def _vector(self, value: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
        shape = None if self._shapes[value.name] == () else [_DIMENSION]
        return onnx.helper.make_tensor_value_info(
            name, value.type.tensor_type.elem_type, shape if shape else []
        )

    def _links(self, name: str) -> bool:
        """Whether two nodes with this value belong together: no number keeps them so.

        One that is returned does, too, by its region.
        """
        return bool(name) and self._shapes.get(name) != ()

    def _with_scalars(self, members: Iterable[int]) -> list[int]:
        """Return nodes with the scalar ones before them, in the graph's order."""
        indices, pending = set(members), list(members)
        while pending:
            node = self._nodes[pending.pop()]
            for name in (*node.input, *_captured(node)):
                producer = self._producers.get(name)
                if producer is not None and producer not in indices:
                    indices.add(producer)
                    pending.append(producer)
        return sorted(indices)

    def _is_scalar(self, node: onnx.NodeProto) -> bool:
        """Whether a node makes of scalars one that is no output: any component may have it."""
        return (
            node.op_type in _EXACT
            and _is_plain(node)
            and all(self._shapes.get(name) == () for name in (*node.input, *node.output) if name)
            and self._outputs.keys().isdisjoint(node.output)
        )

    def _result_shape(self, node: onnx.NodeProto) -> Shape | None:
        """The shape of an elementwise node's result, if no operand is spread but scalars."""
        if node.op_type not in _EXACT:
            return None
        shapes = {self._shapes.get(name) for name in node.input if name}
        full = shapes - {()}
        return full.pop() if len(full) == 1 else None if full else ()


def same_models(components: Iterable[Component]) -> Mapping[bytes, list[Component]]:
    """Return components by their models, so that equal ones can share a session."""
    groups: dict[bytes, list[Component]] = {}
    for component in components:
        content = component.model.SerializeToString(deterministic=True)
        groups.setdefault(content, []).append(component)
    return groups


def _is_plain(node: onnx.NodeProto) -> bool:
    return is_default(node.domain) and not any(_subgraphs(node))


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _captured(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node's subgraphs read."""
    for graph in _subgraphs(node):
        for inner in graph.node:
            yield from inner.input
            yield from _captured(inner)
