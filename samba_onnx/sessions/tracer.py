"""Tracing for the session: models are checked against the PEF that will run them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from samba_onnx.compiling.torch.session_records import GraphRecord, read_records
from samba_onnx.compiling.torch.torch_programs import (
    Training,
    forward_program,
    named_inputs,
    trained_program,
)
from samba_onnx.errors import GraphMismatchError, UsageError
from samba_onnx.export.capture.precision import computing_in
from samba_onnx.export.programs.inference import inference_program
from samba_onnx.export.programs.renaming import with_free_outputs
from samba_onnx.export.programs.training_steps import (
    optimizer_list,
    optimizer_records,
    parameter_names,
)
from samba_onnx.facts.names import in_a_list
from samba_onnx.facts.precisions import stored_precision
from samba_onnx.optim import from_json, state_materializers
from samba_onnx.pef import Pef
from samba_onnx.program.program import DEFAULT_GRAPH
from samba_onnx.sessions.arguments import MAPPINGS
from samba_onnx.sessions.data_parallel import DataParallel, checked_mode
from samba_onnx.sessions.graph_traces import GraphTraces
from samba_onnx.sessions.host_steps import watch_steps
from samba_onnx.sessions.loaded import LoadedProgram
from samba_onnx.sessions.onnx_models import input_symbols, is_onnx, model_source, onnx_fingerprint
from samba_onnx.sessions.onnx_modules import Losses, trained_module
from samba_onnx.sessions.optimizer_steps import OptimizerSteps, check_records, send_state
from samba_onnx.sessions.profiler import SET_TENSORS, Profiler
from samba_onnx.sessions.session_options import SessionOptions
from samba_onnx.sessions.spatial import (
    checked_mapping,
    one_mini_batch,
    refuse_other_mapping,
    with_all_mini_batches,
)
from samba_onnx.sessions.store import compiled_values, places
from samba_onnx.sessions.trace_checks import changed_settings, check_same, trace_of
from samba_onnx.sessions.trace_mode import TraceMode
from samba_onnx.sessions.traced import TracedGraph, empty_output, traced_graph
from samba_onnx.sessions.traced_state import TracedState
from samba_onnx.sessions.turns import TURN, in_turn
from samba_onnx.tensor import DEVICE, SambaTensor
from samba_onnx.tensor.arrays import to_array


class Tracer:
    """Traces models, loads the PEF that was compiled from them, and fills the device."""

    def __init__(
        self,
        program: LoadedProgram,
        state: TracedState,
        mode: TraceMode,
        traces: GraphTraces,
        profiler: Profiler,
        parallel: DataParallel,
    ) -> None:
        """Take what tracing depends on.

        Args:
            program: Loaded and opened here.
            state: Filled with the traced graphs and their tensors.
            mode: Turned on while a module is looked at.
            traces: Traces of several graphs, which are compiled or loaded together.
            profiler: Measures the copies to the device.
            parallel: Told the mode in which replicas combine gradients.
        """
        self._parallel = parallel
        self._program = program
        self._state = state
        self._mode = mode
        self._traces = traces
        self._profiler = profiler

    def trace(
        self,
        model: Any,
        inputs: Any,
        optimizers: Optimizer | Sequence[Optimizer] | None = None,
        *,
        init_output_grads: bool = True,
        loss_indices: Any = None,
        pef: str | os.PathLike[str] = "",
        mapping: str = "section",
        data_parallel_mode: str = "normal",
        transfer_device: bool = True,
        weights: Collection[str] | None = None,
        losses: Losses = None,
        distributed: bool = False,
    ) -> tuple[SambaTensor, ...]:
        """Prepare a model to run; see ``samba.utils.trace_graph``.

        With ``distributed``, or for a program that was launched with ``--data-parallel``, all
        processes of the group begin with what process 0 transfers.
        """
        with TURN.mutex:
            checked_mapping(mapping)
            self._parallel.traced_mode = checked_mode(data_parallel_mode)
            line = SessionOptions.command_line
            if pef := pef or ("" if self._program.pef else str(line.get("pef") or "")):
                self.load(pef)
            record = self._record(mapping)
            listed = _trained_by(record, optimizers, self._program.required_pef())
            recorded = None if record is None else record.onnx
            module = trained_module(model, listed, weights, losses, recorded)
            traced, steps = self._checked_trace(model, module, inputs, listed, record)
            self._fill_device(traced, steps, listed, module, transfer=transfer_device)
            if init_output_grads:
                indices = _flat(loss_indices)
                self.set_output_grads(
                    [one for i, one in enumerate(traced.outputs) if indices is None or i in indices]
                )
            traced.hand_over(self._program.manifest)
        # In a turn of its own: replicas that wait for each other keep other threads out no longer than they must.
        if transfer_device and (distributed or line.get("data_parallel")):
            self._parallel.join_traced()
        return traced.outputs

    @in_turn
    def load(self, path: str | os.PathLike[str]) -> Pef:
        """Load a PEF, and forget what was traced for the one before.

        Args:
            path: Where it is.

        Raises:
            PefError: The PEF cannot be used; nothing has changed then.
        """
        pef = self._program.load(path)
        self._state.clear()
        return pef

    @in_turn
    def trace_multigraph(
        self,
        model: nn.Module,
        inputs: Any,
        optimizers: Optimizer | Sequence[Optimizer] | None = None,
        *,
        mapping: str = "",
        trace_prefix: str | None = None,
    ) -> tuple[SambaTensor, ...]:
        """Trace one of several graphs; see ``samba.utils.trace_multigraph``."""
        checked_mapping(mapping or MAPPINGS[0])
        if optimizer_list(optimizers):
            raise UsageError("a graph of several was given optimizers: such programs cannot train")
        if not isinstance(model, nn.Module):
            raise UsageError(
                f"trace_multigraph was given {type(model).__name__}; give a torch.nn.Module"
            )
        named = named_inputs(model, inputs)
        with self._mode.on():
            program = inference_program(model, named, name=f"graph_{len(self._traces.traces)}")
        program = with_free_outputs(program, self._traces.output_names, trace_prefix or "")
        traced = traced_graph(program, model, named)
        self._traces.traces.append(traced)
        model.output_tensors = traced.outputs  # type: ignore[assignment]
        return traced.outputs

    @in_turn
    def init_multigraph_runtime(
        self, pef: str | os.PathLike[str], transfer_device: bool = True
    ) -> None:
        """Load the PEF of several graphs, which were traced before.

        Args:
            pef: Path of the PEF.
            transfer_device: Send parameters, buffers and inputs of the traced graphs to the device.

        Raises:
            GraphMismatchError: A graph of the PEF was not traced.
            PefError: The PEF cannot be used.
            OutOfDeviceMemoryError: Its tensors do not fit into the device's memory.
        """
        opened = self.load(pef)
        records = read_records(opened)
        if not records:
            raise GraphMismatchError(f"{opened.path} was not compiled by compile_multigraph")
        left = list(self._traces.traces)
        matched = []
        for name, record in records.items():
            traced = trace_of(name, record, left, str(opened.path))
            left.remove(traced)
            traced.name, traced.program = name, None
            matched.append(traced)
        self._program.open_device()
        sent: set[str] = set()
        for traced in matched:
            self._state.adopt(traced, opened.manifest)
            if transfer_device:
                self._transfer(traced, sent)
                sent |= traced.residents.keys()
            traced.hand_over(opened.manifest)

    @in_turn
    def set_output_grads(
        self,
        outputs: Sequence[SambaTensor],
        ones: Sequence[str] = (),
        values: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Write the gradients of outputs on the device; see ``samba.utils.init_output_grads``."""
        listed = [outputs] if isinstance(outputs, SambaTensor) else outputs
        of_ones = in_a_list(ones)
        for output in listed:
            if not DEVICE.has(output.sn_grad_name):
                continue
            value = None if output.sn_name in of_ones else (values or {}).get(output.sn_name)
            if value is None:
                value = torch.ones(tuple(output.shape), dtype=output.dtype)
            output.sn_grad = value

    def _record(self, mapping: str) -> GraphRecord | None:
        """Return what the PEF says of its only graph, which must be mapped as the user asks for."""
        pef, graph = self._program.required_pef(), self._program.graph(None)
        refuse_other_mapping(mapping, graph, pef.path)
        return read_records(pef).get(graph.name)

    def _checked_trace(
        self,
        model: Any,
        module: Any,
        inputs: Any,
        optimizers: Sequence[Optimizer],
        record: GraphRecord | None,
    ) -> tuple[TracedGraph, OptimizerSteps | None]:
        """Trace a model, and check that the PEF was compiled from it.

        Args:
            model: What the user gave.
            module: The same, or the module that was made of it to train.
            inputs: What ``forward`` takes.
            optimizers: Optimizers of its parameters.
            record: What the PEF says of the model it was compiled from, if it says so.

        Raises:
            GraphMismatchError: It is another model.
        """
        graph, manifest = self._program.graph(None), self._program.manifest
        given = named_inputs(module, inputs)
        named = one_mini_batch(given, graph, manifest)
        steps = None
        if is_onnx(module):
            traced = self._trace_onnx(module, named)
        else:
            traced, steps = self._trace_module(module, named, optimizers, record)
        source = model_source(model) if is_onnx(model) else type(module).__name__
        if record is not None:
            changed = changed_settings(record, module, named)
            check_same(record, traced, source, self._program.required_pef(), changed)
        traced = with_all_mini_batches(traced, given, graph, manifest)
        traced.name, traced.program = self._program.graph(None).name, None
        return traced, steps

    def _trace_module(
        self,
        model: nn.Module,
        inputs: Any,
        optimizers: Sequence[Optimizer],
        record: GraphRecord | None,
    ) -> tuple[TracedGraph, OptimizerSteps]:
        """Trace a module as it was compiled: with its backward half, or without."""
        compiled = [from_json(optimizer) for optimizer in record.optimizers] if record else []
        with self._mode.on(), computing_in(stored_precision(self._program.manifest.metadata)):
            if record is None or not record.training:
                program = forward_program(model, inputs)
                return traced_graph(program, model, inputs), OptimizerSteps()
            records = optimizer_records(model, optimizers)
            check_records(compiled, records)
            training = Training(
                record.loss_indices,
                record.gradient_accumulation,
                record.keeps_activations,
                tuple(record.input_gradients),
            )
            program, _ = trained_program(model, inputs, records, training)
        steps = OptimizerSteps(records or compiled, optimizers)
        return traced_graph(program, model, inputs), steps

    def _trace_onnx(self, model: Any, inputs: Any) -> TracedGraph:
        print_, names = onnx_fingerprint(model, {})
        symbols = input_symbols(names, inputs)
        shapes = {name: tuple(tensor.shape) for name, tensor in symbols.items()}
        print_, _ = onnx_fingerprint(model, shapes)
        manifest = self._program.manifest
        known = {symbol.name: symbol for symbol in manifest.symbols}
        return TracedGraph(
            name=DEFAULT_GRAPH,
            model=None,
            inputs=tuple(symbols.values()),
            outputs=tuple(empty_output(known[name]) for name in manifest.graphs[0].outputs),
            fingerprint=print_,
            symbols={tensor.sn_name: name for name, tensor in symbols.items()},
        )

    def _fill_device(
        self,
        traced: TracedGraph,
        steps: OptimizerSteps | None,
        optimizers: Sequence[Optimizer],
        module: Any,
        *,
        transfer: bool,
    ) -> None:
        """Open the device, take in what it has, and send it the values of the host if they are to be."""
        self._program.open_device(steps)
        self._state.adopt(traced, self._program.manifest)
        for optimizer in optimizers if steps is not None else ():
            watch_steps(optimizer)
            self._state.promise(state_materializers(optimizer, parameter_names(module)))
        if transfer:
            self._transfer(traced)
            for optimizer in optimizers:
                send_state(optimizer, parameter_names(module))
        elif steps is not None:
            # Whoever sends the states sends those of the host.
            steps.resume()

    def _transfer(self, traced: TracedGraph, sent: Collection[str] = ()) -> None:
        """Send a graph's parameters, buffers and inputs; lazy values are made one by one."""
        device = self._program.required_device()
        symbols = {symbol.name: symbol for symbol in self._program.manifest.symbols}
        members = places(self._program.manifest)
        with self._profiler.event(SET_TENSORS):
            for name, tensor in traced.residents.items():
                if name in members and name not in sent:
                    member = members[name]
                    device.load({member.name: compiled_values(member, to_array(tensor))})
            for tensor in traced.inputs:
                symbol = symbols.get(traced.symbol(tensor.sn_name))
                if symbol is None or not (tensor.has_data or tensor.materializer_provided):
                    continue
                if symbol.batch_shape is not None and tuple(tensor.shape) != symbol.shape:
                    continue  # One mini-batch, which is no run's input.
                if symbol.region:
                    device.write(symbol.name, to_array(tensor))
                else:
                    self._state.host_inputs[symbol.name] = tensor


def _trained_by(
    record: GraphRecord | None,
    optimizers: Optimizer | Sequence[Optimizer] | None,
    pef: Pef,
) -> list[Optimizer]:
    """Return the optimizers of a run; a PEF that only runs forward would train nothing by them."""
    listed = optimizer_list(optimizers)
    if not listed or (record is not None and record.training):
        return listed
    if SessionOptions.command_line.get("inference"):
        return []
    kinds = ", ".join(type(optimizer).__name__ for optimizer in listed)
    raise UsageError(
        f"{pef.path} was compiled for inference and has no backward pass, but trace_graph was "
        f"given {kinds}: to train, compile with samba.session.compile(model, inputs, optimizer) "
        "and trace that PEF; to run forward, leave the optimizer out"
    )


def _flat(loss_indices: Any) -> Collection[int] | None:
    if loss_indices is None:
        return None
    indices: set[int] = set()
    for item in [loss_indices] if isinstance(loss_indices, int) else loss_indices:
        indices |= {item} if isinstance(item, int) else set(item)
    return indices
