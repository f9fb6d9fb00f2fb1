"""The part of a session that traces models to run them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from samba_onnx.errors import GraphMismatchError, UsageError
from samba_onnx.export.programs.inference import inference_program
from samba_onnx.export.programs.training_steps import (
    optimizer_list,
    optimizer_records,
    parameter_names,
)
from samba_onnx.optim import from_json
from samba_onnx.pef import Pef
from samba_onnx.program.fingerprint import difference
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.program.program import DEFAULT_GRAPH
from samba_onnx.sessions.arrays import to_array
from samba_onnx.sessions.data_parallel import check_data_parallel
from samba_onnx.sessions.exporting import traced_graph, with_free_outputs
from samba_onnx.sessions.onnx_models import input_symbols, is_onnx, model_source, onnx_fingerprint
from samba_onnx.sessions.onnx_modules import Losses, named_inputs, trained_module
from samba_onnx.sessions.optimizer_steps import OptimizerSteps, check_records, send_state
from samba_onnx.sessions.profiler import SET_TENSORS
from samba_onnx.sessions.state import SessionState
from samba_onnx.sessions.traced import TracedGraph, empty_tensor
from samba_onnx.tensor import DEVICE, SambaTensor
from samba_onnx.version import __version__
from samba_onnx.workflows.records import GraphRecord, read_records, stored_fingerprint
from samba_onnx.workflows.torch_programs import Training, forward_program, trained_program

MAPPINGS = ("section", "spatial")


class Tracing(SessionState):
    """Traces of models, checked against the PEF that will run them."""

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
    ) -> tuple[SambaTensor, ...]:
        """Prepare a model to run; see ``samba.utils.trace_graph``."""
        _check_mapping(mapping)
        check_data_parallel(False, data_parallel_mode, False)
        if pef:
            self._load_pef(pef)
        graph = self._graph(None)
        record = read_records(self._loaded_pef()).get(graph.name)
        listed = optimizer_list(optimizers)
        recorded = None if record is None else record.onnx
        given, model = model, trained_module(model, listed, weights, losses, recorded)
        named = named_inputs(model, inputs)
        steps = None
        if is_onnx(model):
            traced = self._trace_onnx(model, named)
        else:
            traced, steps = self._trace_module(model, named, listed, record)
        source = model_source(given) if is_onnx(given) else type(model).__name__
        _check_same(record, traced, source, self._loaded_pef())
        traced.name, traced.program = graph.name, None
        self._open_device(steps)
        self._adopt(traced)
        if transfer_device:
            self._transfer(traced)
            for optimizer in listed:
                send_state(optimizer, parameter_names(model))
        if init_output_grads:
            indices = _flat(loss_indices)
            wanted = [t for i, t in enumerate(traced.outputs) if indices is None or i in indices]
            self.set_output_grads(wanted)
        if traced.model is not None:
            traced.model.output_tensors = traced.outputs  # type: ignore[assignment]
        return traced.outputs

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
        _check_mapping(mapping or MAPPINGS[0])
        if optimizer_list(optimizers):
            raise UsageError("a graph of several was given optimizers: such programs cannot train")
        if not isinstance(model, nn.Module):
            raise UsageError(
                f"trace_multigraph was given {type(model).__name__}; give a torch.nn.Module"
            )
        named = named_inputs(model, inputs)
        with self._traces():
            program = inference_program(model, named, name=f"graph_{len(self._pending)}")
        taken = {tensor.sn_name for graph in self._pending for tensor in graph.outputs}
        program = with_free_outputs(program, taken, trace_prefix or "")
        traced = traced_graph(program, model, named)
        self._pending.append(traced)
        model.output_tensors = traced.outputs  # type: ignore[assignment]
        return traced.outputs

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
        opened = self._load_pef(pef)
        records = read_records(opened)
        if not records:
            raise GraphMismatchError(f"{opened.path} was not compiled by compile_multigraph")
        left = list(self._pending)
        matched = []
        for name, record in records.items():
            traced = _match(name, record, left, str(opened.path))
            left.remove(traced)
            traced.name, traced.program = name, None
            matched.append(traced)
        self._open_device()
        sent: set[str] = set()
        for traced in matched:
            self._adopt(traced)
            if transfer_device:
                self._transfer(traced, sent)
                sent |= traced.residents.keys()

    def set_output_grads(
        self,
        outputs: Sequence[SambaTensor],
        ones: Sequence[str] = (),
        values: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Write the gradients of outputs on the device; see ``samba.utils.init_output_grads``."""
        for output in outputs:
            if not DEVICE.has(output.sn_grad_name):
                continue
            value = None if output.sn_name in ones else (values or {}).get(output.sn_name)
            if value is None:
                value = torch.ones(tuple(output.shape), dtype=output.dtype)
            output.sn_grad = value

    def _trace_module(
        self,
        model: nn.Module,
        inputs: Any,
        optimizers: Sequence[Optimizer],
        record: GraphRecord | None,
    ) -> tuple[TracedGraph, OptimizerSteps]:
        """Trace a module as it was compiled: with its backward half, or without."""
        compiled = [from_json(one) for one in record.optimizers] if record else []
        with self._traces():
            if record is None or not record.training:
                program = forward_program(model, inputs)
                return traced_graph(program, model, inputs), OptimizerSteps()
            given = optimizer_records(model, optimizers)
            check_records(compiled, given)
            training = Training(record.loss_indices, record.gradient_accumulation)
            program = trained_program(model, inputs, given, training)
        steps = OptimizerSteps(given or compiled, optimizers)
        return traced_graph(program, model, inputs), steps

    def _trace_onnx(self, model: Any, inputs: Any) -> TracedGraph:
        print_, names = onnx_fingerprint(model, {})
        symbols = input_symbols(names, inputs)
        shapes = {name: tuple(tensor.shape) for name, tensor in symbols.items()}
        print_, _ = onnx_fingerprint(model, shapes)
        manifest = self._manifest()
        known = {symbol.name: symbol for symbol in manifest.symbols}
        return TracedGraph(
            name=DEFAULT_GRAPH,
            model=None,
            inputs=tuple(symbols.values()),
            outputs=tuple(empty_tensor(known[name]) for name in manifest.graphs[0].outputs),
            fingerprint=print_,
            symbols={tensor.sn_name: name for name, tensor in symbols.items()},
        )

    def _adopt(self, traced: TracedGraph) -> None:
        """Let the session know a graph's tensors."""
        self._traced[traced.name] = traced
        self._renamed = self._renamed or bool(traced.symbols)
        symbols = self._manifest().symbols
        kinds = {symbol.name: symbol.kind for symbol in symbols}
        grads = (s for s in symbols if s.kind is SymbolKind.GRADIENT and s.name == s.region)
        self.tensor_dict["grads"] |= {s.name: empty_tensor(s) for s in grads}
        states = (s for s in symbols if s.kind is SymbolKind.OPTIMIZER_STATE and s.name == s.region)
        self.optim_dict |= {s.name: empty_tensor(s) for s in states}
        self.tensor_dict["inputs"] |= {t.sn_name: t for t in traced.inputs}
        self.tensor_dict["outputs"] |= {t.sn_name: t for t in traced.outputs}
        for name, tensor in traced.residents.items():
            group = "buffers" if kinds.get(name) is SymbolKind.BUFFER else "weights"
            self.tensor_dict[group][name] = tensor

    def _transfer(self, traced: TracedGraph, sent: Collection[str] = ()) -> None:
        """Send a graph's parameters, buffers and inputs; lazy values are made one by one."""
        device = self._open()
        symbols = {symbol.name: symbol for symbol in self._manifest().symbols}
        with self._profiler.event(SET_TENSORS):
            for name, tensor in traced.residents.items():
                if name in symbols and name not in sent:
                    device.load({name: to_array(tensor)})
            for tensor in traced.inputs:
                symbol = symbols.get(traced.symbol(tensor.sn_name))
                if symbol is None or not (tensor.has_data or tensor.materializer_provided):
                    continue
                if symbol.region:
                    device.write(symbol.name, to_array(tensor))
                else:
                    self._held[symbol.name] = tensor


def _check_mapping(mapping: str) -> None:
    if mapping not in MAPPINGS:
        raise UsageError(f"mapping is {mapping!r}; give one of {', '.join(MAPPINGS)}")


def _check_same(record: GraphRecord | None, traced: TracedGraph, source: str, pef: Pef) -> None:
    if record is None:
        return
    clause = difference(stored_fingerprint(record), traced.fingerprint)
    if clause:
        made_by = pef.manifest.producer.version
        other = "" if made_by == __version__ else f" (samba-onnx {made_by} wrote it)"
        raise GraphMismatchError(
            f"{pef.path}{other} was compiled from another model than this {source}: {clause}. "
            "Give the PEF of this model, or compile it again"
        )


def _match(name: str, record: GraphRecord, left: Sequence[TracedGraph], path: str) -> TracedGraph:
    """The trace that a graph of a PEF was compiled from."""
    compiled = stored_fingerprint(record)
    clauses = []
    for traced in left:
        clause = difference(compiled, traced.fingerprint)
        if not clause:
            return traced
        clauses.append(clause)
    why = f": {clauses[0]}" if clauses else ""
    raise GraphMismatchError(
        f"graph {name!r} of {path} is none of those that were traced{why}. Trace all graphs with "
        "samba.utils.trace_multigraph, as when they were compiled"
    )


def _flat(loss_indices: Any) -> Collection[int] | None:
    if loss_indices is None:
        return None
    found: set[int] = set()
    for item in [loss_indices] if isinstance(loss_indices, int) else loss_indices:
        found |= {item} if isinstance(item, int) else set(item)
    return found
