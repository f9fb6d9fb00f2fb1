"""From a torch module to the parts of a program that run it forward and backward."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument

from samba_onnx.errors import GradientError, UsageError
from samba_onnx.export.capture.captured_modules import (
    Inputs,
    arguments,
    captured,
    export_module,
)
from samba_onnx.export.capture.captured_modules import input_names as flat_names
from samba_onnx.export.capture.conforming import check_sizes
from samba_onnx.export.capture.recording_rules import RuleRecorder
from samba_onnx.export.decomposition.dropout import Site, sites
from samba_onnx.export.decomposition.recurrent_steps import has_whole_layers, layers_by_steps
from samba_onnx.export.differentiation.joint import (
    Joint,
    JointRequest,
    Rules,
    flat_outputs,
    joint_graph,
)
from samba_onnx.export.naming import dropout_name
from samba_onnx.export.programs.index_demands import index_demands
from samba_onnx.export.programs.inference import Exported, renamed, symbols
from samba_onnx.export.programs.losses_rule import (
    LossChoice,
    LossIndex,
    chosen_losses,
    find_losses,
    refuse_doubtful_sum,
)
from samba_onnx.export.programs.output_names import output_names
from samba_onnx.export.programs.training_parts import (
    SymbolNames,
    is_tensor,
    write_program,
)
from samba_onnx.facts.names import (
    FreeNames,
    gradient_name,
    root_name,
    updated_name,
    written_name,
)
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.program.program import DEFAULT_GRAPH, ArginSpec, Part, Program
from samba_onnx.safety.collecting import collections_deferred
from samba_onnx.safety.frames import frames_together


@frames_together
@collections_deferred()
def export_training(
    module: nn.Module,
    inputs: Inputs,
    *,
    loss_indices: Sequence[LossIndex] | None = None,
    name: str = DEFAULT_GRAPH,
    prefix: str | None = None,
    input_names: Sequence[str] | None = None,
    gradient_accumulation: bool = False,
    input_gradients: Collection[str] = (),
    keeps_activations: bool = False,
) -> Exported:
    """Return the program that trains a module, forward and backward, with what is known of the module.

    Weights and buffers are residents. Gradients of losses are residents ``<output>__grad``, which
    the backward reads; gradients of parameters are residents ``<weight>__grad``, which it writes.
    Parameters that no loss reaches have none; tied ones are one resident. What the forward changes
    has its new value, ``<buffer>__updated`` or ``<weight>__written``, in its region. Rates and seeds are
    argins. ``with_parts`` adds optimizers.

    Args:
        module: In the mode in which it is to be differentiated; parameters may be on the meta device.
        inputs: Arguments of ``forward``.
        loss_indices: Positions of outputs, or paths into nested ones; None for ``find_losses``.
        name: The program's name.
        prefix: Leads the names of all parameters and outputs.
        input_names: Names of the flat inputs that are tensors, instead of those of the arguments.
        gradient_accumulation: Whether the backward adds to gradients, which a part ZEROGRAD sets to zero.
        input_gradients: Names of inputs that get a gradient ``<input>__grad`` as well.
        keeps_activations: Whether the forward keeps what the backward reads; see ``partition``.

    Raises:
        UsageError: An input does not fit ``forward``, or a named loss or input does not exist.
        GradientError: A loss reaches no parameter, or an operator has no gradient.
        ModelError: The module does what a graph, or ONNX, cannot express.
    """
    args, keywords = arguments(inputs)
    flat, recorder = renamed(flat_names(module, args, keywords), input_names), RuleRecorder()
    exported = _exported(module, args, keywords, recorder)
    check_sizes(exported.graph_module)
    names = _names(module, exported, flat, root_name(module, prefix))
    leaves, dropouts = _leaves(exported, names, input_gradients), _dropouts(exported, names)
    losses = _losses(exported, loss_indices, leaves)
    rules = _rules(module, exported, recorder, gradient_accumulation)
    request = JointRequest(exported, leaves, losses.positions, dropouts, rules, keeps_activations)
    joint = joint_graph(request)
    # What rules do in the forward is behind their nodes: another export has it in full.
    whole = export_module(module, args, keywords) if recorder.rules else exported
    program = write_program(name, request, joint, names)
    return _described(program, whole, names, flat, losses, joint)


def _exported(
    module: nn.Module, args: tuple[Any, ...], keywords: Mapping[str, Any], recorder: RuleRecorder
) -> ExportedProgram:
    """Export a module, with its recurrent layers step by step where gradients are differentiated again."""
    exported = export_module(module, args, keywords, recorder)
    if recorder.differentiates_gradients and has_whole_layers(exported.graph_module):
        with layers_by_steps():
            return export_module(module, args, keywords, recorder)
    return exported


def _rules(
    module: nn.Module, exported: ExportedProgram, recorder: RuleRecorder, accumulates: bool
) -> Rules:
    """Return the user's own rules for gradients, and the tensors that may have some."""
    # Tied members by every path, as the exported graph has a placeholder for each.
    own: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    own |= dict(module.named_buffers(remove_duplicate=False))
    specs = exported.graph_signature.input_specs
    members = {spec.arg.name: own[spec.target] for spec in specs if spec.target in own}
    return Rules(tuple(recorder.rules), members, accumulates)


def _dropouts(exported: ExportedProgram, names: SymbolNames) -> dict[fx.Node, Site]:
    """Return the dropouts of an exported module, with free names for their argins."""
    return sites(
        _all_nodes(exported.graph_module),
        lambda node, kind: names.free.take(dropout_name(names.root, node, kind)),
    )


def with_parts(
    program: Program,
    parts: Iterable[Part],
    *,
    residents: Mapping[str, SymbolKind],
    regions: Mapping[str, str],
    argins: Iterable[ArginSpec] = (),
    metadata: Mapping[str, str] | None = None,
) -> Program:
    """Return a program that goes on with further parts: those of its optimizers.

    Args:
        program: A program that ``export_training`` made.
        parts: Run after the program's own.
        residents: What the new parts read and write besides the program's residents.
        regions: Regions of the new values, by symbol.
        argins: Scalars that the new parts read.
        metadata: Added to the program's.

    Raises:
        UsageError: A value that the new parts bring along has the name of one that there is.
    """
    argins = tuple(argins)
    taken = {*program.inputs, *program.residents, *(argin.name for argin in program.argins)}
    # Values that parts hand on as well: all names are of one memory.
    taken |= {v.name or "" for part in program.parts for v in part.model.graph.outputs}
    states = [n for n, kind in residents.items() if kind is SymbolKind.OPTIMIZER_STATE]
    for name in (*states, *regions, *(argin.name for argin in argins)):
        if name in taken:
            raise UsageError(
                f"a parameter, buffer or input is called {name!r}, which is the name of a value of "
                "the optimizer: give it another name"
            )
    return dataclasses.replace(
        program,
        parts=(*program.parts, *parts),
        residents={**program.residents, **residents},
        regions={**program.regions, **regions},
        argins=(*program.argins, *argins),
        metadata={**program.metadata, **(metadata or {})},
    )


def differentiated(program: Program) -> dict[str, ir.Value]:
    """Return the parameters that a program computes gradients of, for optimizers.

    Args:
        program: A program that ``export_training`` made.

    Returns:
        By name: a value that tells type and sizes, in the order of the module's parameters.
    """
    parameters: dict[str, ir.Value] = {}
    for part in program.parts:
        for value in part.model.graph.inputs:
            name = value.name or ""
            weight = program.residents.get(name) is SymbolKind.WEIGHT
            if weight and gradient_name(name) in program.residents:
                parameters.setdefault(name, value)
    # In the order of the model, while parts have their inputs in the order of use.
    order = {name: index for index, name in enumerate(program.residents)}
    return dict(sorted(parameters.items(), key=lambda item: order[item[0]]))


def _names(
    module: nn.Module, exported: ExportedProgram, inputs: Sequence[str], root: str
) -> SymbolNames:
    """Return the names of all that is in memory before and after a run."""
    members, regions = symbols(module, root)
    own = iter(inputs)
    names: dict[str, str] = {}
    for spec in exported.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            name = next(own)
            if isinstance(spec.arg, TensorArgument):
                names[spec.arg.name] = name
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and spec.target is not None:
            names[spec.arg.name] = members[spec.target]
    # Before outputs are named: a gradient or new value has no other name to take.
    free = FreeNames(names.values())
    free.reserve(map(gradient_name, names.values()))
    for end in (updated_name, written_name):
        free.reserve(map(end, names.values()))
    returned = flat_outputs(exported)
    proposals = output_names(root, returned, exported.call_spec.out_spec)
    outputs = tuple(
        free.take(name) if is_tensor(output) else None
        for output, name in zip(returned, proposals, strict=True)
    )
    return SymbolNames(root, names, regions, outputs, free)


def _described(
    program: Program,
    exported: ExportedProgram,
    names: SymbolNames,
    inputs: Sequence[str],
    losses: LossChoice,
    joint: Joint,
) -> Exported:
    """Return a program with what is known of the module."""
    paths = {spec.arg.name: spec.target for spec in exported.graph_signature.input_specs}
    members: dict[str, str] = {}
    for placeholder, symbol in names.symbols.items():
        path = paths[placeholder]
        # What is written and never read is known by its new value only.
        known = (symbol, updated_name(symbol), written_name(symbol))
        if path is not None and any(name in program.residents for name in known):
            members.setdefault(symbol, path)
    graph = captured(exported, inputs)
    return Exported(
        program=dataclasses.replace(
            program,
            metadata={**program.metadata, **graph.metadata},
            index_demands=index_demands(graph, program.inputs),
        ),
        captured=graph,
        members=members,
        inputs={name: inputs.index(name) for name in program.inputs},
        outputs=names.outputs,
        joint=joint,
        losses=losses,
    )


def _all_nodes(module: fx.GraphModule) -> list[fx.Node]:
    """Return the nodes of a graph and of the graphs within it."""
    nodes = list(module.graph.nodes)
    for inner in module.children():
        if isinstance(inner, fx.GraphModule):
            nodes += _all_nodes(inner)
    return nodes


def _losses(
    exported: ExportedProgram, indices: Sequence[LossIndex] | None, leaves: Collection[str]
) -> LossChoice:
    outputs = flat_outputs(exported)
    # What somebody names is meant, and is doubted by nobody.
    if indices is not None:
        losses = chosen_losses(indices, outputs, exported.call_spec.out_spec)
    else:
        spec = exported.call_spec.out_spec
        losses = find_losses(exported.graph, outputs, leaves, spec)
        refuse_doubtful_sum(losses, outputs)
    if not losses.positions:
        raise GradientError(
            "no output of the module can be a loss: none holds floating-point numbers"
        )
    return losses


def _refuse_histories(exported: ExportedProgram) -> None:
    """Refuse constants through which torch's gradients reach what they were computed from.

    Torch goes there once, in the first backward, and fails in the second.
    """
    for path, constant in exported.constants.items():
        if isinstance(constant, Tensor) and constant.grad_fn is not None:
            raise GradientError(
                f"the module keeps the tensor {path!r}, which an earlier run computed and a gradient "
                "goes through: forget it before compiling, or keep it without a gradient (detach)"
            )


def _is_complex(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_complex() and value.requires_grad


def _leaves(
    exported: ExportedProgram, names: SymbolNames, input_gradients: Collection[str]
) -> dict[str, str]:
    """Return the placeholders to differentiate by, each with the first of the same symbol."""
    _refuse_histories(exported)
    first: dict[str, str] = {}
    leaves: dict[str, str] = {}
    kinds = {spec.arg.name: spec.kind for spec in exported.graph_signature.input_specs}
    real = set()
    is_complex: list[str | None] = []
    for node in exported.graph.find_nodes(op="placeholder"):
        symbol, value = names.symbols.get(node.name), node.meta.get("val")
        if kinds[node.name] is InputKind.PARAMETER and _is_complex(value):
            is_complex.append(symbol)
        if symbol is None or not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        is_input = kinds[node.name] is InputKind.USER_INPUT
        if is_input:
            real.add(symbol)
        is_parameter = kinds[node.name] is InputKind.PARAMETER and value.requires_grad
        if is_parameter or (is_input and symbol in input_gradients):
            # Tied parameters are one leaf.
            leaves[node.name] = first.setdefault(symbol, node.name)
    # Beside real parameters, complex ones stay as they are.
    if is_complex and not leaves:
        raise GradientError(
            f"parameter {is_complex[0]!r} is complex, and the device trains real numbers: keep "
            "torch.view_as_real of it as the parameter, and take torch.view_as_complex of that in forward"
        )
    unknown = sorted(set(input_gradients) - real)
    if unknown:
        raise UsageError(
            f"a gradient is asked for of {', '.join(unknown)}, but the inputs that can have one "
            f"are {', '.join(sorted(real)) or 'none'}"
        )
    return leaves
