"""From a torch module to a functional graph of ATen operators."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from samba_onnx.errors import ModelError, SambaError, UsageError
from samba_onnx.export.capture.assignments import AssignedBuffers
from samba_onnx.export.capture.branches import Values, ValuesNeededError
from samba_onnx.export.capture.caches import register_caches
from samba_onnx.export.capture.capture_refusals import not_captured, refuse_unless_fitting
from samba_onnx.export.capture.carried_state import Watch, keep_state
from samba_onnx.export.capture.conforming import check_sizes, decomposed, written_constant
from samba_onnx.export.capture.data_as_value import DataAsValue
from samba_onnx.export.capture.fake_members import fake, fake_members
from samba_onnx.export.capture.fusion_marks import apply_marks
from samba_onnx.export.capture.identities import restore_identities
from samba_onnx.export.capture.known_values import KnownValues
from samba_onnx.export.capture.loss_marks import loss_marks
from samba_onnx.export.capture.mixed_precision import promoting
from samba_onnx.export.capture.outputs import with_plain_outputs
from samba_onnx.export.capture.precision import computing
from samba_onnx.export.capture.recording_rules import RuleRecorder
from samba_onnx.export.capture.samba_calls import OwnTensors
from samba_onnx.export.capture.surroundings import forget_tensors, forget_traced
from samba_onnx.export.capture.traced_torch import torch_as_it_is_traced
from samba_onnx.export.capture.unchecked import Unchecked
from samba_onnx.export.capture.users import restore_users
from samba_onnx.export.decomposition.functionalizing import functionalized
from samba_onnx.export.naming import flat_names
from samba_onnx.functional import device_limits
from samba_onnx.safety.collecting import collections_deferred

_SPECIALISED: Final = "samba_specialised"
"""Key of a graph's metadata: whether values of inputs decided what is in it."""
_NOTES: Final = "samba_notes"
"""Key of a graph's metadata: what is said of outputs that are not in it."""
_METADATA: Final = "samba_metadata"
"""Key of a graph's metadata: what the PEF says of the types in which it computes."""

Inputs: TypeAlias = tuple[Any, ...] | list[Any] | Mapping[str, Any]
"""Positional or keyword arguments of ``forward``: nested tuples, lists and mappings of tensors;
also None, numbers and strings, which are built into the graph."""


class PlaceholderKind(StrEnum):
    """What a placeholder of a captured graph stands for."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT = "constant"
    INPUT = "input"
    STATIC = "static"
    """An input that is no tensor: its value is part of the graph."""
    ARGIN = "argin"
    """A scalar that every run may set: rate or seed of a dropout."""


_KINDS: Final = MappingProxyType(
    {
        InputKind.PARAMETER: PlaceholderKind.PARAMETER,
        InputKind.BUFFER: PlaceholderKind.BUFFER,
        InputKind.CONSTANT_TENSOR: PlaceholderKind.CONSTANT,
    }
)


@dataclass(frozen=True)
class Placeholder:
    """One operand of a captured graph."""

    name: str
    """Name of the placeholder node in the graph."""
    kind: PlaceholderKind
    qualified: str
    """Path from the module for a parameter, buffer or constant; the name of an input."""
    exported: str = ""
    """Name of the placeholder in torch's own export, which a copy may not keep, as Python has an
    ``input`` of its own; empty for an argin."""


@dataclass(frozen=True)
class Captured:
    """What a module computes with given inputs."""

    graph_module: fx.GraphModule
    """Functional; every node has ``meta["val"]``. Returns a flat list: the module's outputs, then
    the new values of the buffers that it writes."""
    placeholders: tuple[Placeholder, ...]
    updates: tuple[str, ...]
    """Paths of the buffers that are written."""
    constants: Mapping[str, torch.Tensor]
    """Tensors that the module holds without having registered them, by placeholder."""
    out_spec: pytree.TreeSpec
    """How the flat outputs are nested."""
    is_specialised: bool = False
    """Whether what it does depends on values of the inputs that it was captured with."""
    notes: tuple[str, ...] = ()
    """Sentences about what the module returns and the graph does not."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the PEF says of the types in which it computes; empty for the module's own."""

    @property
    def outputs(self) -> tuple[Any, ...]:
        """Flat outputs of the module: nodes, or values that are no tensors."""
        flat = self._returned
        return flat[: len(flat) - len(self.updates)]

    @property
    def updated(self) -> tuple[Any, ...]:
        """New values of ``updates``: nodes."""
        return self._returned[len(self.outputs) :]

    @property
    def _returned(self) -> tuple[Any, ...]:
        return tuple(next(iter(reversed(self.graph_module.graph.nodes))).args[0])


def capture(module: nn.Module, inputs: Inputs) -> Captured:
    """Return what a module computes, as a functional graph of ATen operators.

    Composite operators such as ``linear`` and ``layer_norm`` stay whole. Nothing is computed and
    no parameter is materialised. Sizes and types are those of the inputs.

    Args:
        module: In the mode, training or evaluation, that is to be captured.
        inputs: Arguments of ``forward``.

    Raises:
        UsageError: The inputs do not fit ``forward``.
        ModelError: The module does what a graph cannot express.
    """
    args, keywords = arguments(inputs)
    program = export_module(module, args, keywords)
    return captured(program, [name for name, _ in input_names(module, args, keywords)])


def arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return inputs as positional and keyword arguments.

    Args:
        inputs: Arguments of ``forward``.

    Raises:
        UsageError: They are neither.
    """
    register_caches()
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    raise UsageError(
        f"inputs are {type(inputs).__name__}: give a tuple of positional or a dict of keyword "
        "arguments of forward"
    )


def input_names(
    module: nn.Module, args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Return the flat inputs in torch's order, each with its name.

    Args:
        module: What they are inputs of.
        args: Positional arguments of ``forward``.
        keywords: Keyword arguments.

    Returns:
        A SambaTensor goes by its own name; others by their argument's, with the path to them behind
        it if they are nested: ``cache__0__key``.
    """
    signature = inspect.signature(module.forward)
    flat: list[tuple[str, Any]] = []
    rest = iter(range(len(args)))
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            flat += flat_names([args[i] for i in rest], parameter.name)
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            for index in itertools.islice(rest, 1):
                flat += flat_names(args[index], parameter.name)
    for name, value in keywords.items():
        flat += flat_names(value, name)
    return flat


def export_module(
    module: nn.Module,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    rules: RuleRecorder | None = None,
) -> ExportedProgram:
    """Export a module with ``torch.export``, on tensors that have sizes and types only.

    Args:
        module: Its parameters may be on the meta device or without data.
        args: Positional arguments of ``forward``.
        keywords: Keyword arguments.
        rules: Notes the user's own rules for gradients, each of which leaves a node in the program;
            without it they are traced as far as the forward goes, and leave none.

    Returns:
        The program as torch has it before any decomposition; operators may write in place. None of
        its parameters has content.

    Raises:
        UsageError: The inputs do not fit ``forward``.
        ModelError: The module does what a graph cannot express.
        GradientError: A rule for gradients cannot be compiled.
    """
    refuse_unless_fitting(module, args, keywords)
    program, assigned = None, AssignedBuffers(module)
    while program is None:
        known = len(assigned.known)
        attempt = _Attempt(Values(), Watch(module), rules, assigned)
        try:
            program = _with_values(module, args, keywords, attempt)
        except SambaError:
            # State that is carried in attributes may be why, and is the better thing to say.
            if not keep_state(module, args, keywords, attempt.watch, None):
                raise
        if program is not None and keep_state(module, args, keywords, attempt.watch, program):
            program, assigned = None, AssignedBuffers(module)
        elif rules is not None and len(assigned.known) > known:
            program = None  # gradients need what assigned buffers had before
    if attempt.values.recorded:
        attempt.values.warn(module)
        program.graph_module.meta[_SPECIALISED] = True
    return program


@dataclass(frozen=True)
class _Attempt:
    """What one attempt to trace a module takes and finds."""

    values: Values
    watch: Watch
    rules: RuleRecorder | None
    assigned: AssignedBuffers


def _with_values(
    module: nn.Module, args: tuple[Any, ...], keywords: Mapping[str, Any], attempt: _Attempt
) -> ExportedProgram:
    """Trace a module; where it takes values out of tensors, after a run that records them."""
    try:
        return _traced(module, args, keywords, attempt)
    except ValuesNeededError:
        attempt.values.record(module, args, keywords, gradients=attempt.rules is not None)
    return _traced(module, args, keywords, attempt)


@collections_deferred()
def _traced(
    module: nn.Module,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    attempt: _Attempt,
) -> ExportedProgram:
    """Export a module; numbers that it takes out of tensors are those that were recorded."""
    values, rules = attempt.values, attempt.rules
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    positional, named = pytree.tree_map(lambda leaf: fake(leaf, mode), (args, dict(keywords)))
    constants = KnownValues(values)
    notes: dict[str, None] = {}
    forget_tensors(module)
    try:
        with fake_members(module, mode), device_limits(), warnings.catch_warnings(), Unchecked():
            warnings.simplefilter("ignore")
            with (
                torch_as_it_is_traced(module, values, attempt.assigned),
                with_plain_outputs(module, notes),
                DataAsValue(),
                loss_marks(),
                rules.recording(module) if rules else contextlib.nullcontext(),
                constants,
                OwnTensors(),
                computing(module) as state,
                promoting(module),
                attempt.watch,
            ):
                program = torch.export.export(module, positional, named, strict=False)
    except (SambaError, ValuesNeededError):
        raise
    except Exception as error:  # whatever the module's own code raises
        if values.asked:
            raise ValuesNeededError from error
        raise not_captured(module, error) from error
    finally:
        if constants.are_kept:
            forget_traced()
    restore_users(program)
    restore_identities(program)
    apply_marks(program, module)
    program.graph_module.meta[_NOTES] = tuple(notes)
    program.graph_module.meta[_METADATA] = state.metadata()
    return program


def captured(program: ExportedProgram, names: Sequence[str]) -> Captured:
    """Return an exported program as a functional graph.

    Args:
        program: As ``export_module`` or ``torch.export.export`` returns it.
        names: Names of its flat inputs.
    """
    is_specialised = bool(program.graph_module.meta.get(_SPECIALISED))
    notes = tuple(program.graph_module.meta.get(_NOTES, ()))
    metadata = program.graph_module.meta.get(_METADATA, {})
    graph_module = functionalized(program.graph_module)
    if graph_module is None:
        program = decomposed(program)
        graph_module = program.graph_module
        graph_module.meta["written"] = {}
    check_sizes(graph_module)
    order = iter(names)
    nodes = graph_module.graph.find_nodes(op="placeholder")
    placeholders = tuple(
        Placeholder(
            node.name,
            _kind(spec),
            next(order) if spec.kind is InputKind.USER_INPUT else spec.target or "",
            spec.arg.name,
        )
        for node, spec in zip(nodes, program.graph_signature.input_specs, strict=True)
    )
    outputs, written = _results(program, graph_module, placeholders)
    graph_module.graph.output_node().args = ([*outputs, *written.values()],)
    constants = {
        placeholder.name: program.constants[placeholder.qualified]
        for placeholder in placeholders
        if placeholder.kind is PlaceholderKind.CONSTANT
    }
    return Captured(
        graph_module=graph_module,
        placeholders=placeholders,
        updates=tuple(written),
        constants=MappingProxyType(constants),
        out_spec=program.call_spec.out_spec,
        is_specialised=is_specialised,
        notes=notes,
        metadata=metadata,
    )


def _kind(spec: InputSpec) -> PlaceholderKind:
    if spec.kind is InputKind.USER_INPUT:
        return (
            PlaceholderKind.INPUT
            if isinstance(spec.arg, TensorArgument)
            else PlaceholderKind.STATIC
        )
    try:
        return _KINDS[spec.kind]
    except KeyError:
        raise ModelError(
            f"the module keeps {spec.target or spec.arg.name!r}, which is no tensor, and computes "
            "with it: compute with tensors only"
        ) from None


def _results(
    program: ExportedProgram, graph_module: fx.GraphModule, placeholders: Sequence[Placeholder]
) -> tuple[list[Any], dict[str, fx.Node]]:
    """Return the flat outputs, and the new value of each member that is written.

    Raises:
        ModelError: The module writes into a tensor that it has not registered.
    """
    outputs: list[Any] = []
    written: dict[str, fx.Node] = {}
    returned = graph_module.graph.output_node().args[0]
    for spec, value in zip(program.graph_signature.output_specs, returned, strict=True):  # type: ignore[arg-type]
        if spec.kind is OutputKind.USER_OUTPUT:
            outputs.append(value)
        elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            written[str(spec.target)] = value
    known = {placeholder.name: placeholder for placeholder in placeholders}
    for name, value in graph_module.meta["written"].items():
        if known[name].kind is PlaceholderKind.CONSTANT:
            raise written_constant(known[name].qualified)
        if known[name].kind in (PlaceholderKind.BUFFER, PlaceholderKind.PARAMETER):
            written[known[name].qualified] = value
    return outputs, written
