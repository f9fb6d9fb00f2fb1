"""Compiling for the session: modules, ONNX models, and graphs that were traced."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from torch import nn
from torch.optim import Optimizer

from samba_onnx.comparing.eager.refusals import refuse_unless_prepared
from samba_onnx.compiling.choices import Level
from samba_onnx.compiling.compared_conversion import convert_compared
from samba_onnx.compiling.compiler import ProgramSource, compile_programs, convert
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.torch.session_records import GraphRecord, write_records
from samba_onnx.compiling.torch.torch_programs import (
    Training,
    attached_losses,
    keeps_activations,
    named_inputs,
    recorded_program,
    wanted_input_gradients,
)
from samba_onnx.errors import UsageError
from samba_onnx.export.capture.precision import computing_in
from samba_onnx.export.programs.region_types import match_region_types
from samba_onnx.export.programs.stochastic_rounding import round_stochastically
from samba_onnx.export.programs.training_steps import optimizer_list
from samba_onnx.facts.names import RATE
from samba_onnx.facts.roundings import write_rounding
from samba_onnx.pef.hints import write_hints
from samba_onnx.program.program import DEFAULT_GRAPH, Program
from samba_onnx.sessions.arguments import given_hints
from samba_onnx.sessions.fusion import hints_beside
from samba_onnx.sessions.graph_traces import GraphTraces
from samba_onnx.sessions.onnx_models import input_symbols, is_onnx, onnx_fingerprint
from samba_onnx.sessions.onnx_modules import (
    Losses,
    trained_module,
)
from samba_onnx.sessions.options import Destination, Model, SessionOptions, output_path
from samba_onnx.sessions.spatial import refuse_batch_dimensions
from samba_onnx.sessions.trace_mode import TraceMode
from samba_onnx.sessions.traced import TracedGraph
from samba_onnx.sessions.turns import in_turn
from samba_onnx.tensor.arrays import to_array

LOGGER: Final = logging.getLogger(__name__)

_TRACED_NOTE: Final = (
    "Graphs that were traced are not compared with eager torch: an engine prepared every part of "
    "them, and ran none."
)
"""Only the first graph carries it, for it speaks of the whole PEF."""


_NO_SPATIAL_ONNX: Final = (
    "an ONNX model that only runs forward is compiled for mapping 'section': leave mapping out, or "
    "compile the module that samba.from_onnx makes of it"
)


class Compiler:
    """Compiles one model, or several graphs that were traced, into a PEF."""

    def __init__(self, options: SessionOptions, mode: TraceMode, traces: GraphTraces) -> None:
        """Take what compiling depends on.

        Args:
            options: Settings that count where a call has none of its own.
            mode: Turned on while a module is looked at.
            traces: The graphs to compile together.
        """
        self._options = options
        self._mode = mode
        self._traces = traces

    @in_turn
    def compile(
        self,
        model: Model,
        inputs: Any,
        optimizers: Optimizer | Sequence[Optimizer] | None,
        destination: Destination,
        *,
        name: str = "",
        loss_indices: Any = None,
        inference: bool = False,
        graph_transform_hook: Callable[..., Any] | None = None,
        check: bool = True,
        gradient_accumulation: bool = False,
        weights: Collection[str] | None = None,
        losses: Losses = None,
    ) -> str:
        """Compile one model; see ``SambaSession.compile``.

        Args:
            model: What is compiled.
            inputs: What ``forward`` takes.
            optimizers: Optimizers of its parameters; None for inference.
            destination: Where the PEF goes, for which device, and what is kept in it.
            name: What reports call the model.
            loss_indices: Which outputs are losses.
            inference: Leave out the backward half.
            graph_transform_hook: Not supported.
            check: Compare what was exported with the model itself.
            gradient_accumulation: Let backward sections add to gradients.
            weights: Names of the initializers of an ONNX model that are trained.
            losses: Losses to build on the outputs of an ONNX model.

        Returns:
            Path of the PEF.
        """
        if graph_transform_hook is not None:
            raise UsageError("graph_transform_hook is not supported; leave it out")
        settings = self._options.with_settings(destination.settings)
        listed = optimizer_list(optimizers)
        forward_only = inference or bool(settings.get("inference"))
        trained = [] if forward_only else listed
        is_onnx(model)  # refuses what is no model, before it is asked for a name
        path = output_path(settings, model, destination.output)
        options = self._rounded(destination.options(settings))
        model = trained_module(model, trained, weights, losses)
        named = named_inputs(model, inputs)
        if is_onnx(model):
            if options.training.spatial_batches:
                raise UsageError(_NO_SPATIAL_ONNX)
            roundings = dict.fromkeys(sorted(options.numbers.stochastic_rounding), 0)
            texts = {**destination.texts(), **self._hints(settings, options)}
            texts |= write_rounding(roundings)
            # What is rounded at random is told, and is none of what an ONNX model has.
            chosen = options.replace(stochastic_rounding=None)
            _compile_onnx(model, named, path, texts, chosen, check)
            return _announced(path)
        assert isinstance(model, nn.Module)
        accumulates = bool(settings.get("gradient_accumulation")) or gradient_accumulation
        gradients = () if forward_only else wanted_input_gradients(model, named)
        training = None
        if trained or gradients:
            keeps = keeps_activations(options.sections.level)
            indices = attached_losses(model, loss_indices)
            training = Training(indices, accumulates, keeps, gradients)
        with self._mode.on(), computing_in(options.numbers.precision):
            program = recorded_program(model, named, trained, training, check=check)
        if training is None and program.argins:
            _tell_of_dropouts(model, program)
        if batches := options.training.spatial_batches:
            refuse_batch_dimensions(named)
            program = dataclasses.replace(program, spatial_batches=batches)
        # Some hints are given while tracing.
        texts = {**destination.texts(), **self._hints(settings, options, program)}
        # After everything that is compared with torch, which rounds to nearest.
        program = round_stochastically(program, options.numbers.stochastic_rounding)
        source = ProgramSource([program], name)
        compile_programs(source, path, options=options, metadata=texts).close()
        return _announced(path)

    @in_turn
    def compile_graphs(
        self, destination: Destination, *, name: str = "", samba_only: bool = False
    ) -> str | None:
        """Compile the graphs that were added; see ``SambaSession.compile_multigraph``.

        Args:
            destination: Where the PEF goes, for which device, and what is kept in it.
            name: What reports call the model, and the PEF is called where no setting names it.
            samba_only: Stop before anything is compiled.

        Returns:
            Path of the PEF; None with ``samba_only``.
        """
        graphs = self._traces.added()
        if samba_only:
            return None
        settings = self._options.with_settings(destination.settings)
        options = self._rounded(destination.options(settings))
        if options.training.spatial_batches:
            raise UsageError(
                "compile_multigraph was asked for mapping 'spatial', which keeps one graph on the "
                "RDU: leave mapping out, or compile the graph alone"
            )
        if not options.numbers.precision.is_own:
            raise UsageError(
                "compile_multigraph was asked for another precision than the modules' own, in which "
                "their graphs were traced: leave precision and graphamp_preset out, or convert the "
                "modules (model.bfloat16()) before they are traced"
            )
        programs = [_program_of(graph) for graph in graphs]
        match_region_types(programs)
        for part in (part for program in programs for part in program.parts):
            refuse_unless_prepared(part)
        programs[0] = dataclasses.replace(programs[0], notes=(*programs[0].notes, _TRACED_NOTE))
        records = {graph.name: GraphRecord(graph.fingerprint.text()) for graph in graphs}
        if not settings.get("pef_name") and name:
            settings["pef_name"] = name
        path = output_path(settings, None, destination.output)
        roundings = options.numbers.stochastic_rounding
        programs = [round_stochastically(program, roundings) for program in programs]
        texts = {
            **destination.texts(),
            **self._hints(settings, options, *programs),
            **write_records(records),
        }
        source = ProgramSource(programs, name)
        compile_programs(source, path, options=options, metadata=texts).close()
        for graph in graphs:
            graph.program = None
        return _announced(path)

    def _rounded(self, options: CompileOptions) -> CompileOptions:
        """Return options with what one compilation rounds at random, of which calls of the session can say more."""
        stated = options.numbers.stochastic_rounding
        return options.replace(stochastic_rounding=self._options.take_roundings(stated))

    def _hints(
        self, settings: Mapping[str, Any], options: CompileOptions, *programs: Program
    ) -> dict[str, str]:
        """Return all hints for one compilation as metadata."""
        # Taken in any case: they were for this compilation, whether it used them or not.
        recorded = self._options.take_hints()
        if options.sections.level == Level.O1:
            recorded = hints_beside(recorded, programs)
        return write_hints({**given_hints(settings), **recorded})


def _announced(path: Path) -> str:
    """Return where a PEF was written to, and log it as SambaFlow's compiler does."""
    LOGGER.info("PEF file %s created", path)
    LOGGER.info("Logs are generated in %s", path.parent)
    return str(path)


def _tell_of_dropouts(model: nn.Module, program: Program) -> None:
    """Say that a program without optimizers drops values, which is seldom meant."""
    count = sum(argin.name.endswith(RATE) for argin in program.argins)
    LOGGER.warning(
        "%s is in training mode: its dropouts (%d) are compiled, with rates as argins. Run it with "
        "hyperparam_dict={'p': 0.0} or train=False, or call eval() before compiling.",
        type(model).__name__,
        count,
    )


def _program_of(traced: TracedGraph) -> Program:
    """A trace's program with the regions that its tensors have by now."""
    program = traced.program
    if program is None:
        raise UsageError(f"graph {traced.name!r} was compiled already; trace it again")
    regions = dict(program.regions)
    for tensor in (*traced.inputs, *traced.outputs):
        # A tensor that was given no region has one of its own name, which needs no entry.
        if tensor.sn_region_name != tensor.sn_name:
            regions[tensor.sn_name] = tensor.sn_region_name
    return dataclasses.replace(program, name=traced.name, regions=regions)


def _compile_onnx(
    model: Any,
    inputs: Any,
    path: os.PathLike[str],
    texts: dict[str, str],
    options: CompileOptions,
    check: bool,
) -> None:
    symbols = _onnx_symbols(model, inputs)
    shapes = {name: tuple(tensor.shape) for name, tensor in symbols.items()}
    print_, _ = onnx_fingerprint(model, shapes)
    metadata = {**texts, **write_records({DEFAULT_GRAPH: GraphRecord(print_.text())})}
    # No random sample: what is compared is a run with the example inputs.
    chosen = options.replace(input_shapes=shapes, sample=False)
    if not check:
        convert(model, path, options=chosen, metadata=metadata).close()
        return
    valued = [tensor.has_data or tensor.materializer_provided for tensor in symbols.values()]
    # Values are needed of all inputs: the original model cannot run with some of them.
    missing = "" if all(valued) else "an input has no values"
    arrays = {} if missing else {name: to_array(tensor) for name, tensor in symbols.items()}
    convert_compared(model, path, arrays, missing, options=chosen, metadata=metadata)


def _onnx_symbols(model: Any, inputs: Any) -> dict[str, Any]:
    names = onnx_fingerprint(model, {})[1]
    return input_symbols(names, inputs)
