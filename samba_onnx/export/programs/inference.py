"""From a torch module to the program that runs it forward."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import onnx_ir as ir
import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from samba_onnx.errors import ModelError, UsageError
from samba_onnx.export.capture.captured_modules import (
    Captured,
    Inputs,
    Placeholder,
    PlaceholderKind,
    arguments,
    captured,
    export_module,
)
from samba_onnx.export.capture.captured_modules import input_names as names_of
from samba_onnx.export.capture.conforming import check_constants
from samba_onnx.export.decomposition.dropout_operands import with_dropout_operands
from samba_onnx.export.differentiation.joint import Joint
from samba_onnx.export.naming import SymbolClaims, dropout_name
from samba_onnx.export.programs.index_demands import index_demands
from samba_onnx.export.programs.losses_rule import LossChoice
from samba_onnx.export.programs.narrow_residents import narrow_residents
from samba_onnx.export.programs.output_names import output_names
from samba_onnx.export.translation.builder import GraphBuilder
from samba_onnx.export.translation.element_types import onnx_type
from samba_onnx.export.translation.graphs import constant, live_nodes, translate
from samba_onnx.facts.names import FreeNames, root_name, updated_name, written_name
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import DEFAULT_GRAPH, ArginSpec, Part, Program
from samba_onnx.safety.collecting import collections_deferred
from samba_onnx.safety.frames import frames_together
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.modules import member_names

_RESIDENTS: Final = MappingProxyType(
    {PlaceholderKind.PARAMETER: SymbolKind.WEIGHT, PlaceholderKind.BUFFER: SymbolKind.BUFFER}
)


@dataclass(frozen=True)
class Exported:
    """A module's program, and what is known of the module beside it."""

    program: Program
    captured: Captured
    members: Mapping[str, str]
    """Path of the parameter or buffer by the name of the resident."""
    inputs: Mapping[str, int]
    """Position among the module's flat inputs, by name; those that the graph reads."""
    outputs: tuple[str | None, ...]
    """Name of every flat output of the module; None for one that is no tensor."""
    joint: Joint | None = None
    """Forward and backward in one graph, of a program that trains."""
    values: Mapping[str, fx.Node] = field(default_factory=dict)
    """Nodes of the captured graph by the names of the values that they became, of a program that only
    runs forward."""
    losses: LossChoice | None = None
    """The outputs that training starts from; None for a program that only runs forward."""


def inference_program(
    module: nn.Module,
    inputs: Inputs,
    *,
    name: str = DEFAULT_GRAPH,
    prefix: str | None = None,
    input_names: Sequence[str] | None = None,
) -> Program:
    """Return the program that runs a module forward.

    Args:
        module: In the mode, training or evaluation, in which it is to be run; its parameters may be
            on the meta device.
        inputs: Arguments of ``forward``.
        name: The program's name.
        prefix: Leads the names of all parameters and outputs.
        input_names: Names of the flat inputs that are tensors, instead of those of the arguments.

    Returns:
        One part of type FWD. Parameters and buffers that are read are residents; the new value of a
        buffer that is written is the resident ``<buffer>__updated`` in the buffer's region. Rates
        and seeds of dropouts that drop anything are argins.

    Raises:
        UsageError: The inputs do not fit ``forward`` or ``input_names``.
        ModelError: The module does what a graph, or ONNX, cannot express.
    """
    return export_inference(
        module, inputs, name=name, prefix=prefix, input_names=input_names
    ).program


@frames_together
@collections_deferred()
def export_inference(
    module: nn.Module,
    inputs: Inputs,
    *,
    name: str = DEFAULT_GRAPH,
    prefix: str | None = None,
    input_names: Sequence[str] | None = None,
    keywords: Mapping[str, Any] | None = None,
) -> Exported:
    """Return the program that runs a module forward, with what is known of the module.

    Args:
        module: The module to run; it is not changed.
        inputs: Arguments of ``forward``.
        name: The program's name.
        prefix: Leads the names of all parameters and outputs.
        input_names: Names of the flat inputs that are tensors.
        keywords: Keyword arguments besides, of a module that takes both.

    Raises:
        UsageError: The inputs do not fit.
        ModelError: The module does what a graph, or ONNX, cannot express.
    """
    args, named = arguments(inputs)
    named |= keywords or {}
    flat = renamed(names_of(module, args, named), input_names)
    graph = captured(export_module(module, args, named), flat)
    check_constants(graph.graph_module, graph.constants)
    return _Writer(module, graph, root_name(module, prefix)).exported(name)


@frames_together
@collections_deferred()
def export_program(
    program: ExportedProgram, module: nn.Module, root: str, *, name: str = DEFAULT_GRAPH
) -> Exported:
    """Return the program of what ``torch.export`` exported, with its own sizes.

    Args:
        program: An exported program all of whose sizes are static.
        module: What it was exported from, or ``program.module()``: has its parameters.
        root: Leads the names of all parameters and outputs.
        name: The program's name.

    Raises:
        ModelError: ONNX cannot express an operator.
    """
    spec = program.call_spec.in_spec
    args, keywords = pytree.tree_unflatten(range(spec.num_leaves), spec)
    flat = [leaf for leaf, _ in names_of(module, args, keywords)]
    return _Writer(module, captured(program, flat), root).exported(name)


def renamed(flat: Sequence[tuple[str, Any]], names: Sequence[str] | None) -> list[str]:
    """Return the names of flat inputs.

    Args:
        flat: Name and leaf, as ``input_names`` of the captured module returns them.
        names: Names of the leaves that are tensors, instead of their own; None for none.

    Returns:
        A name per leaf. Two tensors have one name only if they are the same tensor.

    Raises:
        UsageError: There are more or fewer names than tensors, or two tensors have one name.
    """
    chosen = _chosen(flat, names)
    tensors: dict[str, Any] = {}
    for name, (_, leaf) in zip(chosen, flat, strict=True):
        if isinstance(leaf, torch.Tensor) and tensors.setdefault(name, leaf) is not leaf:
            raise UsageError(
                f"two inputs are called {name!r}; inputs are told apart by name: give each its own"
            )
    return chosen


def _chosen(flat: Sequence[tuple[str, Any]], names: Sequence[str] | None) -> list[str]:
    if names is None:
        return [name for name, _ in flat]
    tensors = [index for index, (_, leaf) in enumerate(flat) if isinstance(leaf, torch.Tensor)]
    if len(names) != len(tensors):
        raise UsageError(
            f"{len(names)} input names were given for {len(tensors)} tensors among the inputs"
        )
    known = dict(zip(tensors, names, strict=True))
    return [known.get(index, name) for index, (name, _) in enumerate(flat)]


class _Writer:
    """Writes one captured graph as a program."""

    def __init__(self, module: nn.Module, graph: Captured, root: str) -> None:
        self._graph = graph
        self._root = root
        self._build = GraphBuilder(root)
        self._symbols, self._regions = symbols(module, root)
        self._kinds = {
            p.qualified: _RESIDENTS[p.kind] for p in graph.placeholders if p.kind in _RESIDENTS
        }
        self._members: dict[str, str] = {}
        self._inputs: dict[str, int] = {}
        self._residents: dict[str, SymbolKind] = {}
        self._argins: list[ArginSpec] = []
        self._claims = SymbolClaims()

    def exported(self, name: str) -> Exported:
        original = self._graph
        self._take_dropouts_apart()
        values = self._operands()
        made: dict[fx.Node, Any] = {}
        results = translate(self._graph.graph_module, self._build, values, made)
        outputs, regions = self._outputs(results), self._updates(results)
        if not self._build.graph.outputs:
            raise ModelError(
                "the module returns no tensor and writes no buffer, so that there is nothing to "
                "compute: return a tensor"
            )
        if original.metadata:
            narrow_residents(self._build.graph, self._residents.keys() - set(regions.values()))
        program = Program(
            name=name,
            parts=(Part(SectionType.FWD, self._build.model()),),
            inputs=tuple(self._inputs),
            outputs=tuple(output for output in outputs if output is not None),
            residents=MappingProxyType(self._residents),
            regions=MappingProxyType(regions),
            argins=tuple(self._argins),
            notes=original.notes,
            metadata=MappingProxyType(dict(original.metadata)),
            index_demands=index_demands(original, self._inputs),
        )
        return Exported(
            program,
            original,
            MappingProxyType(self._members),
            MappingProxyType(self._inputs),
            tuple(outputs),
            values=MappingProxyType(_by_name(made)),
        )

    def _take_dropouts_apart(self) -> None:
        """Let the dropouts of the graph read rates and seeds."""
        placeholders = self._graph.placeholders
        given = (one.qualified for one in placeholders if one.kind is PlaceholderKind.INPUT)
        free = FreeNames((*self._symbols.values(), *given))
        dropping = with_dropout_operands(
            self._graph.graph_module,
            lambda node, kind: free.take(dropout_name(self._root, node, kind)),
        )
        if dropping is not None:
            self._argins = list(dropping.argins.values())
            added = (
                Placeholder(name, PlaceholderKind.ARGIN, argin.name)
                for name, argin in dropping.argins.items()
            )
            self._graph = dataclasses.replace(
                self._graph,
                graph_module=dropping.graph_module,
                placeholders=(*placeholders, *added),
            )

    def _operands(self) -> dict[str, ir.Value]:
        """Return a graph input or constant for every placeholder that a result depends on."""
        values: dict[str, ir.Value] = {}
        live = live_nodes(self._graph.graph_module.graph)
        nodes = {n.name: n for n in self._graph.graph_module.graph.find_nodes(op="placeholder")}
        position = -1
        for placeholder in self._graph.placeholders:
            position += placeholder.kind in (PlaceholderKind.INPUT, PlaceholderKind.STATIC)
            node = nodes[placeholder.name]
            if placeholder.kind is PlaceholderKind.STATIC or node not in live:
                continue
            if placeholder.kind is PlaceholderKind.CONSTANT:
                tensor = self._graph.constants[placeholder.name]
                values[placeholder.name] = constant(self._build, tensor)
            elif placeholder.kind is PlaceholderKind.INPUT:
                values[placeholder.name] = self._given(placeholder.qualified, node, position)
            elif placeholder.kind is PlaceholderKind.ARGIN:
                self._claims.claim(placeholder.qualified, f"argin {placeholder.qualified!r}")
                values[placeholder.name] = self._input(placeholder.qualified, node)
            else:
                kind, qualified = placeholder.kind, placeholder.qualified
                values[placeholder.name] = self._resident(kind, qualified, node)
        return values

    def _given(self, name: str, node: fx.Node, position: int) -> ir.Value:
        """Return an input of the program; a tensor that is given twice is one."""
        if name in self._inputs:
            return self._known(name)
        self._claims.claim(name, f"input {name!r}")
        self._inputs[name] = position
        return self._input(name, node)

    def _known(self, name: str) -> ir.Value:
        return next(value for value in self._build.graph.inputs if value.name == name)

    def _resident(self, kind: PlaceholderKind, qualified: str, node: fx.Node) -> ir.Value:
        name = self._symbols[qualified]
        if name in self._residents:
            return self._known(name)
        self._claims.claim(name, f"{kind} {qualified!r}")
        self._residents[name] = _RESIDENTS[kind]
        self._members[name] = qualified
        return self._input(name, node)

    def _input(self, name: str, node: fx.Node) -> ir.Value:
        tensor = node.meta["val"]
        return self._build.input(name, onnx_type(tensor.dtype), map(int, tensor.shape))

    def _outputs(self, results: Sequence[ir.Value | None]) -> list[str | None]:
        outputs = self._graph.outputs
        proposals = output_names(self._root, outputs, self._graph.out_spec)
        return [
            None if value is None else self._output(value, proposal)
            for value, proposal in zip(results[: len(outputs)], proposals, strict=True)
        ]

    def _output(self, value: ir.Value, proposal: str) -> str:
        """Make a value an output under the proposed name, or under that with a number behind it."""
        if not value.is_graph_output():
            self._leave_name(value, proposal)
        if value.name == proposal and value.producer() and not value.is_graph_output():
            self._build.graph.outputs.append(value)
            return proposal
        name = self._build.available(proposal)
        self._build.output(value, name)
        return name

    def _leave_name(self, value: ir.Value, proposal: str) -> None:
        """Give a value the proposed name if it is a conversion of the one that has it."""
        producer = value.producer()
        source = producer.inputs[0] if producer is not None and producer.op_type == "Cast" else None
        if source is None or source.name != proposal or source.producer() is None:
            return
        if not source.is_graph_output():
            source.name, value.name = self._build.unique(f"{proposal}_bfloat16"), proposal

    def _updates(self, results: Sequence[ir.Value | None]) -> dict[str, str]:
        """Add the new values of buffers to the outputs; return the regions of all values."""
        regions = {name: self._regions[name] for name in self._members if name in self._regions}
        new = results[len(self._graph.outputs) :]
        written: set[str] = set()
        for qualified, value in zip(self._graph.updates, new, strict=True):
            name = self._symbols[qualified]
            kind = self._kinds[qualified]
            updated = updated_name(name) if kind is SymbolKind.BUFFER else written_name(name)
            if value is None or value.name == name or updated in written:
                continue
            written.add(updated)
            self._claims.claim(updated, f"the new value of {kind} {qualified!r}")
            self._build.output(value, updated)
            self._residents[updated] = kind
            self._members.setdefault(name, qualified)
            regions[updated] = self._regions.get(name, name)
        return regions


def _by_name(made: Mapping[fx.Node, Any]) -> dict[str, fx.Node]:
    """Return the nodes of which one value was made, by its name; of several the first, which made it."""
    nodes: dict[str, fx.Node] = {}
    for node, value in made.items():
        if isinstance(value, ir.Value) and value.name:
            nodes.setdefault(value.name, node)
    return nodes


def symbols(module: nn.Module, root: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return how parameters and buffers of a module are called on the device.

    Args:
        module: Converted or not.
        root: Leads the names of what was not converted.

    Returns:
        Names by path from the module; and regions by name, where they are not the name itself.

    Raises:
        UsageError: Two different tensors have one name, as ``a.b__c`` and ``a__b.c`` have.
    """
    names = member_names(module, root)
    members: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    members |= dict(module.named_buffers(remove_duplicate=False))
    claims, seen = SymbolClaims(), set[int]()
    for path, tensor in members.items():
        if id(tensor) not in seen:  # what has several paths goes by the first
            kind = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
            claims.claim(names[path], f"{kind} {path!r}")
            seen.add(id(tensor))
    regions = {
        names[path]: tensor.sn_region_name
        for path, tensor in members.items()
        if isinstance(tensor, SambaTensor) and tensor.sn_region_name != names[path]
    }
    return names, regions
