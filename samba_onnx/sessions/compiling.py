"""The part of a session that compiles models."""

from __future__ import annotations

import dataclasses
import os
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from samba_onnx.errors import UsageError
from samba_onnx.export.programs.training_steps import optimizer_list
from samba_onnx.graph import SambaGraph
from samba_onnx.program.program import DEFAULT_GRAPH, Program
from samba_onnx.sessions.arrays import to_array
from samba_onnx.sessions.onnx_models import input_symbols, is_onnx, onnx_fingerprint
from samba_onnx.sessions.onnx_modules import (
    Losses,
    attached_losses,
    named_inputs,
    trained_module,
)
from samba_onnx.sessions.options import (
    Model,
    flat_options,
    level_of,
    metadata_of,
    output_path,
    target_of,
)
from samba_onnx.sessions.state import SessionState
from samba_onnx.sessions.traced import TracedGraph
from samba_onnx.workflows.checking.refusals import refuse_unless_prepared
from samba_onnx.workflows.compiler import compile_programs, convert
from samba_onnx.workflows.original_check import convert_compared
from samba_onnx.workflows.records import GraphRecord, write_records
from samba_onnx.workflows.torch_programs import Training, recorded_program

Settings = Mapping[str, Any] | Namespace | None


class Compiling(SessionState):
    """Compilation of one model, or of several graphs, into a PEF."""

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
        check: bool = True,
        gradient_accumulation: bool = False,
        weights: Collection[str] | None = None,
        losses: Losses = None,
    ) -> str:
        """Trace a model with its optimizers, and compile it into a PEF.

        The values of a torch model's parameters are no part of the PEF; those of an ONNX model
        are, unless it has optimizers or losses: it is then the torch module that
        ``samba.from_onnx`` makes of it, and the optimizers are of that module's parameters. The PEF is written to ``<output_folder>/<pef_name>/<pef_name>.pef``, of the settings
        in ``config_dict``, else of those given to ``setup``; ``output_folder`` is ``out`` and
        ``pef_name`` the lower-case name of the model's class unless they say otherwise.

        Args:
            model: A torch module, an ONNX model, or the path to one.
            inputs: What ``forward`` takes: a tuple by position or a dict by keyword, with tuples,
                dicts and None inside. Shapes and dtypes count, values do not.
            optimizers: One, several, or None for inference.
            name: What reports call the model.
            loss_indices: Which outputs are losses; when None, those that a loss function made, or
                else all.
            io_host_memory: Accepted, without effect.
            app_dir: Accepted, without effect.
            config_dict: Settings, which override those of ``setup``.
            pef_metadata: What to keep in the PEF, by key.
            squeeze_bs_dim: Accepted, without effect.
            init_output_grads: Accepted, without effect.
            inference: Leave out the backward half, optimizers or not.
            metadata: What to keep in the PEF besides, by key.
            is_split_batch: Accepted, without effect.
            graph_transform_hook: Not supported.
            graph_names: Accepted, without effect.
            output: Path of the PEF, which overrides the settings.
            target: The device: a name or the path to a profile, which overrides the settings.
            level: ``o0`` or ``o3``, which overrides the settings.
            check: Compute the outputs by what was exported and by the model itself, and refuse to
                compile if they differ. Dropouts are compared with their rates at 0. Where there is
                nothing to compare with, a note in the PEF says why.
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
        del io_host_memory, app_dir, squeeze_bs_dim, init_output_grads, is_split_batch, graph_names
        if graph_transform_hook is not None:
            raise UsageError("graph_transform_hook is not supported; leave it out")
        options = {**self._options, **flat_options(config_dict)}
        listed = optimizer_list(optimizers)
        path = output_path(options, model, output)
        model = trained_module(model, [] if inference else listed, weights, losses)
        named = named_inputs(model, inputs)
        texts = metadata_of(pef_metadata, metadata)
        where = {"target": target_of(options, target), "level": level_of(options, level)}
        if is_onnx(model):
            _compile_onnx(model, named, path, texts, where, check)
            return str(path)
        assert isinstance(model, nn.Module)
        listed = [] if inference else listed
        accumulates = bool(options.get("gradient_accumulation")) or gradient_accumulation
        training = Training(attached_losses(model, loss_indices), accumulates) if listed else None
        with self._traces():
            recorded = recorded_program(model, named, listed, training, check=check)
        texts |= write_records({DEFAULT_GRAPH: recorded.record})
        compile_programs([recorded.program], path, name=name, metadata=texts, **where).close()
        return str(path)

    def add_graph(self, graph: SambaGraph, overwrite: bool = False) -> None:
        """Add a graph to those that ``compile_multigraph`` compiles.

        Args:
            graph: Of outputs that ``trace_multigraph`` returned.
            overwrite: Take the place of a graph of that name; the new one is the last.

        Raises:
            UsageError: There is a graph of that name already, or it was not traced.
        """
        if not isinstance(graph, SambaGraph):
            raise UsageError(f"a graph is {type(graph).__name__}; give a samba.graph.FwdGraph")
        if graph.name in self._graphs and not overwrite:
            raise UsageError(
                f"there is a graph {graph.name!r} already; give this one another name, or "
                "overwrite=True"
            )
        self._graphs.pop(graph.name, None)
        self._traced_by(graph).name = graph.name
        self._graphs[graph.name] = graph

    def compile_multigraph(
        self,
        name: str = "",
        samba_only: bool = False,
        *,
        config_dict: Settings = None,
        pef_metadata: Any = None,
        metadata: Mapping[str, Any] | None = None,
        output: str | os.PathLike[str] | None = None,
        target: str | os.PathLike[str] | None = None,
        level: str | None = None,
        **ignored: Any,
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
            **ignored: Accepted, without effect.

        Returns:
            Path of the PEF; None with ``samba_only``.

        Raises:
            UsageError: No graph was added, or graphs contradict each other.
            EngineRefusalError: An operator cannot be run; the message names it.
            OutOfDeviceMemoryError: The graphs do not fit into the device's memory.
            OutputError: The PEF cannot be written.
        """
        del ignored
        if not self._graphs:
            raise UsageError("there are no graphs to compile: add some with session.add_graph")
        if samba_only:
            return None
        options = {**self._options, **flat_options(config_dict)}
        traced = [self._traced_by(graph) for graph in self._graphs.values()]
        programs = [_program_of(graph) for graph in traced]
        for part in (part for program in programs for part in program.parts):
            refuse_unless_prepared(part)
        records = {graph.name: GraphRecord(graph.fingerprint.text()) for graph in traced}
        texts = {**metadata_of(pef_metadata, metadata), **write_records(records)}
        if not options.get("pef_name") and name:
            options["pef_name"] = name
        path = output_path(options, None, output)
        compile_programs(
            programs,
            path,
            name=name,
            metadata=texts,
            target=target_of(options, target),
            level=level_of(options, level),
        ).close()
        for graph in traced:
            graph.program = None
        return str(path)

    def _traced_by(self, graph: SambaGraph) -> TracedGraph:
        """The trace that a graph's outputs come from."""
        wanted = {id(output) for output in graph.outputs}
        for traced in self._pending:
            if wanted <= {id(output) for output in traced.outputs}:
                return traced
        raise UsageError(
            f"the outputs of graph {graph.name!r} are not those of one trace: give outputs that "
            "samba.utils.trace_multigraph returned"
        )


def _program_of(traced: TracedGraph) -> Program:
    """A trace's program with the regions that its tensors have by now."""
    program = traced.program
    if program is None:
        raise UsageError(f"graph {traced.name!r} was compiled already; trace it again")
    regions = dict(program.regions)
    for tensor in (*traced.inputs, *traced.outputs):
        if tensor.sn_region_name != tensor.sn_name:
            regions[tensor.sn_name] = tensor.sn_region_name
    return dataclasses.replace(program, name=traced.name, regions=regions)


def _compile_onnx(
    model: Any,
    inputs: Any,
    path: os.PathLike[str],
    texts: dict[str, str],
    where: Mapping[str, Any],
    check: bool,
) -> None:
    symbols = _onnx_symbols(model, inputs)
    shapes = {name: tuple(tensor.shape) for name, tensor in symbols.items()}
    print_, _ = onnx_fingerprint(model, shapes)
    metadata = {**texts, **write_records({DEFAULT_GRAPH: GraphRecord(print_.text())})}
    options = {"input_shapes": shapes, "sample": False, "metadata": metadata, **where}
    if not check:
        convert(model, path, **options).close()
        return
    valued = [tensor.has_data or tensor.materializer_provided for tensor in symbols.values()]
    missing = "" if all(valued) else "an input has no values"
    arrays = {} if missing else {name: to_array(tensor) for name, tensor in symbols.items()}
    convert_compared(model, path, arrays, missing, **options)


def _onnx_symbols(model: Any, inputs: Any) -> dict[str, Any]:
    names = onnx_fingerprint(model, {})[1]
    return input_symbols(names, inputs)
