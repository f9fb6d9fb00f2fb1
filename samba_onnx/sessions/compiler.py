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
from samba_onnx.compiling.compiler import ProgramSource, compile_programs
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
from samba_onnx.pef.hints import write_hints
from samba_onnx.program.program import Program
from samba_onnx.sessions.arguments import given_hints
from samba_onnx.sessions.fusion import hints_beside
from samba_onnx.sessions.graph_traces import GraphTraces
from samba_onnx.sessions.onnx_compiling import compile_onnx
from samba_onnx.sessions.onnx_models import is_onnx
from samba_onnx.sessions.onnx_modules import (
    Losses,
    trained_module,
)
from samba_onnx.sessions.session_options import (
    Destination,
    Model,
    SessionOptions,
    Settings,
    output_path,
)
from samba_onnx.sessions.spatial import refuse_batch_dimensions
from samba_onnx.sessions.trace_mode import TraceMode
from samba_onnx.sessions.traced import TracedGraph
from samba_onnx.sessions.turns import in_turn

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
        optimizers: Optimizer | Sequence[Optimizer] | None = None,
        name: str = "",
        loss_indices: Any = None,
        io_host_memory: bool | None = None,
        *,
        app_dir: str | None = None,
        config_dict: Settings = None,
        pef_metadata: Any = None,
        squeeze_bs_dim: bool = False,
        init_output_grads: bool = True,
        inference: bool = False,
        metadata: Mapping[str, Any] | None = None,
        is_split_batch: bool = False,
        graph_transform_hook: Callable[..., Any] | None = None,
        graph_names: Sequence[str] | None = None,
        output: str | os.PathLike[str] | None = None,
        target: str | os.PathLike[str] | None = None,
        level: str | None = None,
        precision: str | None = None,
        kernel_looping: bool | None = None,
        stochastic_rounding: str | Collection[str] | None = None,
        check: bool = True,
        gradient_accumulation: bool = False,
        weights: Collection[str] | None = None,
        losses: Losses = None,
    ) -> str:
        """Trace a model with its optimizers, and compile it into a PEF.

        The values of a torch model's parameters are no part of the PEF; those of an ONNX model
        are, unless it has optimizers or losses: it is then the torch module that
        ``samba.from_onnx`` makes of it, and the optimizers are of that module's parameters. The PEF is written to ``<output_folder>/<pef_name>/<pef_name>.pef``, of the settings
        in ``config_dict``, else of those given to ``setup``, else of the command line that
        ``set_command_line`` was told; ``output_folder`` is ``out`` and ``pef_name`` the lower-case
        name of the model's class unless they say otherwise. With ``mapping`` "spatial" a run makes
        ``num_spatial_batches`` steps. The PEF lists settings that are only hints, without effect.

        Args:
            model: A torch module, an ONNX model, or the path to one.
            inputs: What ``forward`` takes: a tuple by position or a dict by keyword, with tuples,
                dicts and None inside. Shapes and dtypes count, values do not.
            optimizers: One, several, or None for inference.
            name: What reports call the model.
            loss_indices: Which outputs are losses; when None, those that a loss function made, or
                else all.
            io_host_memory: A hint, which the PEF lists.
            app_dir: Accepted, without effect.
            config_dict: Settings, which override those of ``setup``.
            pef_metadata: What to keep in the PEF, by key.
            squeeze_bs_dim: A hint, which the PEF lists.
            init_output_grads: Accepted, without effect.
            inference: Leave out the backward half, optimizers or not; so does a setting
                ``inference``.
            metadata: What to keep in the PEF besides, by key.
            is_split_batch: A hint, which the PEF lists.
            graph_transform_hook: Not supported.
            graph_names: A hint, which the PEF lists.
            output: Path of the PEF, which overrides the settings.
            target: The device: a name or the path to a profile, with conditions, as ``sn30:4tiles``, or
                without, which overrides the settings.
            level: ``o0`` or ``o3``, which overrides the settings.
            precision: ``fp32`` for the model's own types, ``mixed`` for bfloat16 in matrix products and
                convolutions, ``bf16`` for bfloat16 in all that the model does not convert to float32
                itself, ``bf16-throughout`` for all. Overrides the settings, of which
                ``graphamp_preset`` counts. Inputs, outputs, and what is trained stay float32.
            kernel_looping: Let the device loop over equal sections that follow each other, which are launched
                once, as a target ``sn40l:kernel-looping`` says; overrides the settings.
            stochastic_rounding: What a program that trains rounds to bfloat16 at random, so that the mean
                is right, and not to nearest: ``steps`` for what optimizers store, ``gradients`` for the
                sums that make gradients of weights, or of them ``convolution-gradients`` and
                ``bias-gradients``; several names, or one text with commas. Overrides the settings, of
                which ``enable_stochastic_rounding`` and ``weight_grad_reduce`` count.
            check: Compute the outputs by what was exported and by the model itself, and refuse to
                compile if they differ; so with gradients, and with steps of the optimizers by
                torch.optim. Dropouts are compared with their rates at 0. Where there is nothing to
                compare with, a note in the PEF says why.
            gradient_accumulation: Let backward sections add to gradients; ZEROGRAD sections set
                them to zero.
            weights: For an ONNX model, names of the initializers that are trained, as of
                ``samba.from_onnx``.
            losses: For an ONNX model, losses to build on its outputs, as of ``samba.from_onnx``;
                those of the optimizers' module when None.

        Returns:
            Path of the PEF.

        Raises:
            UsageError: Arguments are of the wrong kind or contradict each other.
            ModelError: The model cannot be compiled.
            ExportMismatchError: What was exported computes something else; the message names the
                first operator that does. Nothing is written.
            EngineRefusalError: What was exported cannot be run; the message names the operator.
                Nothing is written.
            OutOfDeviceMemoryError: The model does not fit into the device's memory.
            OutputError: The PEF cannot be written.
        """
        del app_dir, init_output_grads
        self._options.record_hints(
            io_host_memory=io_host_memory,
            squeeze_bs_dim=squeeze_bs_dim,
            is_split_batch=is_split_batch,
            graph_names=graph_names,
        )
        if graph_transform_hook is not None:
            raise UsageError("graph_transform_hook is not supported; leave it out")
        overrides = {
            "target": target,
            "level": level,
            "precision": precision,
            "kernel_looping": kernel_looping,
            "stochastic_rounding": stochastic_rounding,
        }
        destination = Destination(config_dict, (pef_metadata, metadata), output, overrides)
        settings = self._options.with_settings(config_dict)
        listed = optimizer_list(optimizers)
        forward_only = inference or bool(settings.get("inference"))
        trained = [] if forward_only else listed
        is_onnx(model)  # refuses what is no model, before it is asked for a name
        path = output_path(settings, model, output)
        options = self._rounded(destination.options(settings))
        model = trained_module(model, trained, weights, losses)
        named = named_inputs(model, inputs)
        if is_onnx(model):
            if options.training.spatial_batches:
                raise UsageError(_NO_SPATIAL_ONNX)
            texts = {**destination.texts(), **self._hints(settings, options)}
            compile_onnx(model, named, path, texts, options, check=check)
            return _announced(path)
        assert isinstance(model, nn.Module)
        gradients = () if forward_only else wanted_input_gradients(model, named)
        training = None
        if trained or gradients:
            keeps = keeps_activations(options.sections.level)
            accumulates = bool(settings.get("gradient_accumulation")) or gradient_accumulation
            training = Training(attached_losses(model, loss_indices), accumulates, keeps, gradients)
        program = self._recorded(model, named, trained, training, options, check=check)
        # Some hints are given while tracing.
        texts = {**destination.texts(), **self._hints(settings, options, program)}
        # After everything that is compared with torch, which rounds to nearest.
        program = round_stochastically(program, options.numbers.stochastic_rounding)
        source = ProgramSource([program], name)
        compile_programs(source, path, options=options, metadata=texts).close()
        return _announced(path)

    @in_turn
    def compile_multigraph(
        self,
        /,
        name: str = "",
        samba_only: bool = False,
        *,
        config_dict: Settings = None,
        pef_metadata: Any = None,
        metadata: Mapping[str, Any] | None = None,
        output: str | os.PathLike[str] | None = None,
        target: str | os.PathLike[str] | None = None,
        level: str | None = None,
        **hints: Any,
    ) -> str | None:
        """Compile the graphs that were added, in their order, into one PEF.

        Tensors of different graphs with one ``sn_region_name`` are one place in device memory.

        Args:
            name: What reports call the model.
            samba_only: Stop before anything is compiled.
            config_dict: Settings, which override those of ``setup``; see ``compile``.
            pef_metadata: What to keep in the PEF, by key.
            metadata: What to keep in the PEF besides, by key.
            output: Path of the PEF, which overrides the settings.
            target: The device, which overrides the settings.
            level: ``o0`` or ``o3``, which overrides the settings.
            **hints: Hints such as ``enable_hypersection``, which the PEF lists.

        Returns:
            Path of the PEF; None with ``samba_only``.

        Raises:
            UsageError: No graph was added, or graphs contradict each other.
            EngineRefusalError: An operator cannot be run; the message names it.
            OutOfDeviceMemoryError: The graphs do not fit into the device's memory.
            OutputError: The PEF cannot be written.
        """
        self._options.record_hints(**hints)
        destination = Destination(
            config_dict, (pef_metadata, metadata), output, {"target": target, "level": level}
        )
        return self._compile_graphs(destination, name, samba_only=samba_only)

    def _compile_graphs(
        self, destination: Destination, name: str, *, samba_only: bool
    ) -> str | None:
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

    def _recorded(
        self,
        model: nn.Module,
        inputs: Any,
        optimizers: Sequence[Optimizer],
        training: Training | None,
        options: CompileOptions,
        *,
        check: bool,
    ) -> Program:
        """Return what a module computes in the precision that was asked for, compared with it."""
        with self._mode.on(), computing_in(options.numbers.precision):
            program = recorded_program(model, inputs, optimizers, training, check=check)
        if training is None and program.argins:
            _tell_of_dropouts(model, program)
        if batches := options.training.spatial_batches:
            refuse_batch_dimensions(inputs)
            program = dataclasses.replace(program, spatial_batches=batches)
        return program

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
