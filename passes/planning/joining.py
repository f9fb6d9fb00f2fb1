"""Puts the parts of a program together into one graph with one schedule."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import onnx_ir as ir

from samba_onnx.errors import InternalError
from samba_onnx.facts.names import FreeNames
from samba_onnx.passes.planning.partitioning import Group
from samba_onnx.passes.planning.placement import Placement
from samba_onnx.passes.planning.roles import Roles, unique
from samba_onnx.program.dataflow import name_of, subgraphs
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Program


@dataclass(frozen=True)
class PlacedPart:
    """A part of a program after all passes, cut into groups."""

    type: SectionType
    model: ir.Model
    groups: tuple[Group, ...]
    placement: Placement


@dataclass(frozen=True)
class JoinedProgram:
    """A whole program as one graph."""

    model: ir.Model
    groups: tuple[Group, ...]
    """In the order in which they run; each knows the type of its part."""
    placement: Placement
    roles: Roles


def join(
    program: Program,
    parts: Sequence[PlacedPart],
    taken: Iterable[str] = (),
    changed: frozenset[str] = frozenset(),
    shared: Mapping[ir.Value, str] = MappingProxyType({}),
) -> JoinedProgram:
    """Return the parts as one graph, in which values are tied together by their names.

    Args:
        program: What the values are to the device.
        parts: Its parts, in order. Their nodes are moved, not copied.
        taken: Names of values of other programs of the same PEF. Values that only pass between
            nodes of this one get other names.
        changed: Regions that programs of the same PEF change.
        shared: Initializers of the parts that other programs have, too, with the names that they have
            there.

    Returns:
        The joined program.

    Raises:
        InternalError: The program names values that its parts do not have, or the parts use
            different operator sets.
    """
    joiner = _Joiner(program, taken, changed, shared)
    for part in parts:
        joiner.add(part)
    return joiner.finish(parts)


class _Joiner:
    """Moves the nodes of parts into one graph."""

    def __init__(
        self,
        program: Program,
        taken: Iterable[str],
        changed: frozenset[str],
        shared: Mapping[ir.Value, str],
    ) -> None:
        self.program = program
        self._shared = shared
        self._changed = changed
        self.graph = ir.Graph([], [], nodes=[], name=program.name)
        self.values: dict[str, ir.Value] = {}
        """Inputs of the program and outputs of its parts, by name."""
        self._given = {*program.inputs, *(argin.name for argin in program.argins)}
        self._public = {*self._given, *program.outputs, *program.residents}
        self._names = FreeNames({*taken, *self._public}, first=2)
        self._node_names = FreeNames(first=2)

    def add(self, part: PlacedPart) -> None:
        """Move a part's nodes to the end of the graph."""
        source = part.model.graph
        for domain, version in source.opset_imports.items():
            if self.graph.opset_imports.setdefault(domain, version) != version:
                raise InternalError(f"parts use two versions of {domain!r}: please report this")
        outputs = {name_of(value): value for value in source.outputs}
        twice = [n for n, v in outputs.items() if n in self.values and v.producer() is not None]
        if twice:
            raise InternalError(f"two parts write {twice[0]!r}: please report this")
        inputs, initializers = list(source.inputs), list(source.initializers.values())
        # A value belongs to one graph in all its parts: it is moved when it has left this one.
        source.outputs.clear()
        source.inputs.clear()
        for value in initializers:
            del source.initializers[name_of(value)]
        for value in inputs:
            tied = self._tie(value)
            # An output may be an input as it is, and is what this was tied to then.
            if outputs.get(name_of(value)) is value:
                outputs[name_of(value)] = tied
        for value in initializers:
            # The default of an input and a weight that is an output are known by their names.
            self._adopt_initializer(
                value, keep_name=value.is_graph_input() or value.name in outputs
            )
        nodes = list(source)
        source.remove(nodes)
        self._names.reserve(_names_inside(nodes))
        for node in nodes:
            self._rename(node, kept=frozenset(outputs.values()))
        self.graph.extend(nodes)
        self.values |= outputs

    def finish(self, parts: Sequence[PlacedPart]) -> JoinedProgram:
        """Return the whole."""
        program = self.program
        inputs = tuple(self._known(name) for name in program.inputs if name in self.values)
        argins = tuple(
            self._known(argin.name) for argin in program.argins if argin.name in self.values
        )
        outputs = tuple(self._known(name) for name in program.outputs)
        residents = {
            self.values[name]: kind
            for name, kind in program.residents.items()
            if name in self.values
        }
        # What nodes write to residents is an output, too: else no stage would return it to the device.
        self.graph.outputs.extend(
            unique([*outputs, *(value for value in residents if not value.is_graph_input())])
        )
        return JoinedProgram(
            # The newest of all: an older one may lack what a newer part uses.
            model=ir.Model(self.graph, ir_version=max(part.model.ir_version for part in parts)),
            groups=tuple(replace(g, type=part.type) for part in parts for g in part.groups),
            placement=Placement(
                reasons={n: r for part in parts for n, r in part.placement.reasons.items()},
                supports={n: s for part in parts for n, s in part.placement.supports.items()},
            ),
            roles=Roles(
                inputs=(*inputs, *argins),
                outputs=outputs,
                residents=residents,
                argins=frozenset(argins),
                regions=program.regions,
                changed=self._changed,
                spatial_batches=program.spatial_batches,
            ),
        )

    def _known(self, name: str) -> ir.Value:
        value = self.values.get(name)
        if value is None:
            raise InternalError(f"no part has the value {name!r}: please report this")
        return value

    def _tie(self, value: ir.Value) -> ir.Value:
        """Replace a part's input by the value of that name that there is, or make it one."""
        name = name_of(value)
        value_of_name = self.values.get(name)
        if value_of_name is not None:
            ir.convenience.replace_all_uses_with(value, value_of_name)
            return value_of_name
        if name not in self._public:
            raise InternalError(f"nothing gives a part its input {name!r}: please report this")
        self.graph.inputs.append(value)
        self.values[name] = value
        return value

    def _adopt_initializer(self, value: ir.Value, *, keep_name: bool) -> None:
        if not keep_name:
            # A value renames its tensor, too, which may lie in the user's own model.
            tensor, value.const_value = value.const_value, None
            value.name = self._shared.get(value) or self._names.take(name_of(value))
            value.const_value = tensor
        self.graph.register_initializer(value)

    def _rename(self, node: ir.Node, kept: Collection[ir.Value]) -> None:
        """Give a node and its results names of their own.

        Args:
            node: A node of the part that is being added.
            kept: Outputs of the part, which keep the names that the program knows. Any other value of
                such a name is one that this part computes for itself: it gets another name.
        """
        node.name = self._node_names.take(node.name or node.op_type)
        for value in node.outputs:
            if value.name and not (value in kept and value.name in self._public):
                value.name = self._names.take(value.name)


def _names_inside(nodes: Iterable[ir.Node]) -> set[str]:
    """Return the names of values in the bodies of nodes, which must be no names of outer ones."""
    names: set[str] = set()
    for node in nodes:
        for body in subgraphs(node):
            names.update(name_of(value) for value in (*body.inputs, *body.initializers.values()))
            names.update(name_of(value) for inner in body for value in inner.outputs)
            names |= _names_inside(body)
    return names
