"""The part of a session that runs programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import torch
from torch import nn

from samba_onnx.errors import InputError, UsageError
from samba_onnx.pef.manifest import Graph, Symbol
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.inputs import describe
from samba_onnx.runtime.requests import run_request
from samba_onnx.runtime.selection import SectionIds
from samba_onnx.sessions.arrays import from_array, to_array
from samba_onnx.sessions.data_parallel import check_data_parallel
from samba_onnx.sessions.inputs import by_name
from samba_onnx.sessions.plans import Fetched, RunPlan, make_plan
from samba_onnx.sessions.profiler import RUN, event_name
from samba_onnx.sessions.shortcuts import make_shortcut
from samba_onnx.sessions.state import SessionState
from samba_onnx.sessions.traced import matches
from samba_onnx.tensor import DEVICE, SambaTensor
from samba_onnx.tensor.marks import Marks
from samba_onnx.tensor.native import natively

_NO_NUMBERS: Mapping[str, float] = {}
_LISTS = (list, tuple)
Outputs = tuple[SambaTensor, ...]


class Running(SessionState):
    """Runs of a program that was traced."""

    def run(
        self,
        input_tensors: Any = None,
        output_tensors: Any = (),
        hyperparam_dict: Any = _NO_NUMBERS,
        data_parallel: Any = False,
        reduce_on_rdu: bool = False,
        section_ids: SectionIds = (),
        section_types: Sequence[str] = (),
        run_until_call_id: int | None = None,
        run_from_call_id: int | None = None,
        data_parallel_mode: str = "normal",
        train: bool = True,
        *,
        graph_name: str | None = None,
        grad_of_outputs: Sequence[torch.Tensor] | None = None,
        detect_anomaly: bool = False,
    ) -> tuple[SambaTensor, ...]:
        """Copy inputs to the device, execute sections, and copy outputs back.

        ``run(model, inputs, outputs)`` works, too: the model is ignored.

        Args:
            input_tensors: Tensors of the compiled shapes and dtypes, told apart by ``sn_name``: a
                list, a tuple, or a dict, which names those without a name. None, for an input or
                for all, stands for the value that the device has.
            output_tensors: Traced tensors or names whose values are wanted: outputs of the graph,
                in any number and order, or other tensors on the device. One tensor may be given
                as it is.
            hyperparam_dict: Numbers by name, as ``lr`` or ``p`` (the rate of all dropouts), or by
                the name of an argin. They persist. Names that the program does not have are
                ignored.
            data_parallel: Run on several devices, each with a part of the batch.
            reduce_on_rdu: Add up gradients of several devices there, and not on the host.
            section_ids: Execute these sections only, in this order.
            section_types: Execute sections of these types only, in this order; any case.
            run_until_call_id: Stop before this call of the schedule.
            run_from_call_id: Begin with this call of the schedule.
            data_parallel_mode: ``normal``, ``inorder`` or ``optimal``.
            train: Whether dropouts drop values. Without, their rates are 0 in this run.
            graph_name: The graph to run; may be left out if there is one only.
            grad_of_outputs: Gradients of the graph's outputs, in their order, for the backward
                sections of this and later runs; None leaves one as it is.
            detect_anomaly: Look for NaN and infinite numbers in what each section writes, which is
                slower, and stop at the first: before sections that would use it.

        Returns:
            The values asked for, in that order, in memory of their own.

        Raises:
            NotTracedError: No graph was traced.
            InputError: An input has no name, another shape or dtype, does not exist, or was never
                given. The device is unchanged.
            UsageError: An output or graph does not exist, or arguments contradict each other. The
                device is unchanged.
            ScheduleError: A section, type or call does not exist, or would read what nothing has
                computed. The device is unchanged.
            AnomalyError: ``detect_anomaly`` found something; names the first section and value.
            ExecutionError: An operator failed.
        """
        key: Any = None
        if (
            type(input_tensors) in _LISTS
            and type(output_tensors) in _LISTS
            and not (hyperparam_dict or data_parallel or section_ids or detect_anomaly)
            and grad_of_outputs is None
            and run_until_call_id is None
            and run_from_call_id is None
        ):
            try:
                marks = [tensor._marks for tensor in output_tensors]
                # The tuple that equals the RunRequest of this run: a small model is quick.
                key = (
                    graph_name or self._only_graph,
                    tuple([tensor._marks.name for tensor in input_tensors]),
                    tuple([one.name for one in marks]),
                    None,
                    tuple(section_types) or None,
                    None,
                    None,
                    False,
                )
            except AttributeError:
                pass
            else:
                if self._renamed:
                    key = self._in_the_pef(key)
                if self._device is not None and not self._profiler.active:
                    prepared = self._device.runs.ready(key)
                    if prepared is not None and prepared.shortcut is not None:
                        made: Outputs | None = prepared.shortcut.run(input_tensors, marks)
                        if made is not None:
                            return made
        if isinstance(input_tensors, (nn.Module, onnx.ModelProto)):
            # As the documented examples call it.
            input_tensors, output_tensors = output_tensors, hyperparam_dict or ()
            hyperparam_dict, data_parallel = data_parallel or {}, False
        handle = self._profiler.start_event(event_name(section_types))
        check_data_parallel(data_parallel, data_parallel_mode, reduce_on_rdu)
        plan = self._plan(
            output_tensors,
            section_ids,
            section_types,
            run_from_call_id,
            run_until_call_id,
            graph_name,
        )
        numbers = self._hyperparameters.checked(hyperparam_dict or _NO_NUMBERS)
        inputs = self._arrays(plan.graph, by_name(input_tensors))
        if grad_of_outputs is not None:
            self._set_output_grads(plan.graph, grad_of_outputs)
        results = self._execute(plan, inputs, numbers, train, detect_anomaly)
        self._profiler.end_event(handle)
        if key is not None and not self._hyperparameters.names:
            self._make_shortcut(key, input_tensors, output_tensors, results)
        return results

    def _execute(
        self,
        plan: RunPlan,
        inputs: dict[str, Array],
        numbers: Mapping[str, Any],
        train: bool,
        detect_anomaly: bool,
    ) -> tuple[SambaTensor, ...]:
        device = self._open()
        argins = self._hyperparameters.argins(
            numbers, train=train, forward=plan.forward, step=plan.step
        )
        handle = self._profiler.start_event(RUN)
        request = run_request(
            plan.graph.name,
            inputs,
            plan.last_outputs,
            single=detect_anomaly,
            **plan.selection(),
        )
        results = device.execute(device.prepare(request), inputs, argins)
        self._profiler.end_event(handle)
        self._hyperparameters.keep(numbers, forward=plan.forward, step=plan.step)
        for name in inputs:
            self._held.pop(name, None)
        return tuple(_result(wanted, results) for wanted in plan.outputs)

    def _in_the_pef(self, key: Any) -> Any:
        """A request with the PEF's names of tensors."""
        graph, inputs, outputs, *rest = key
        symbol = self._traced[graph].symbol
        return graph, tuple(map(symbol, inputs)), tuple(map(symbol, outputs)), *rest

    def _make_shortcut(
        self,
        key: Any,
        tensors: Sequence[SambaTensor],
        asked: Sequence[SambaTensor],
        results: Sequence[SambaTensor],
    ) -> None:
        """Remember a run that was just made, if it is as plain as runs mostly are."""
        device = self._open()
        prepared = device.runs.ready(key)
        if prepared is None or prepared.replay is None or prepared.shortcut is not None:
            return
        # An output that is asked for twice, or read from elsewhere, takes the long way.
        if len(prepared.outputs) == len(asked):
            prepared.shortcut = make_shortcut(
                device, prepared.replay, key[1], tensors, asked, results
            )

    def _plan(
        self,
        outputs: Any,
        section_ids: SectionIds,
        section_types: Sequence[str],
        from_call: int | None,
        until_call: int | None,
        graph_name: str | None,
    ) -> RunPlan:
        """The plan of a run, from memory if a run was called like this before."""
        self._open()
        wanted = _output_names(outputs)
        key = (wanted, repr(section_ids), tuple(section_types), from_call, until_call, graph_name)
        plan = self._plans.get(key)
        if plan is None:
            graph = self._graph(graph_name)
            fetched = tuple(self._fetched(graph, *output) for output in wanted)
            plan = make_plan(
                self._manifest(), graph, fetched, section_ids, section_types, from_call, until_call
            )
            self._plans[key] = plan
        return plan

    def _fetched(self, graph: Graph, name: str, region: str) -> Fetched:
        """What a name among the outputs means."""
        traced = self._traced.get(graph.name)
        symbol = traced.symbol(name) if traced else name
        marks = Marks(name=name, region_name="" if region == name else region)
        if symbol in graph.outputs:
            return Fetched(symbol, marks, computed=True)
        for place in (symbol, region):
            if DEVICE.has(place):
                return Fetched(place, marks, computed=False)
        listed = ", ".join(map(repr, graph.outputs))
        raise UsageError(
            f"output {name!r} does not exist; graph {graph.name!r} has outputs {listed}"
        )

    def _arrays(self, graph: Graph, given: Mapping[str, torch.Tensor]) -> dict[str, Array]:
        """What the device is given, checked."""
        traced = self._traced.get(graph.name)
        specs = self._input_symbols(graph)
        arrays = {
            name: to_array(tensor)
            for name, tensor in self._held.items()
            if name in specs and name not in given
        }
        for name, tensor in given.items():
            symbol = specs.get(traced.symbol(name) if traced else name)
            if symbol is not None:
                arrays[symbol.name] = _checked(tensor, name, symbol)
            elif traced is None or all(tensor.sn_name != name for tensor in traced.inputs):
                listed = ", ".join(
                    f"{s.name!r} {describe(s.type, s.shape)}" for s in specs.values()
                )
                raise InputError(
                    f"input {name!r} does not exist; graph {graph.name!r} has {listed or 'none'}: "
                    "name the tensor as the one that was traced"
                )
        return arrays

    def _input_symbols(self, graph: Graph) -> dict[str, Symbol]:
        """The inputs of a graph that a run may be given."""
        known = self._specs.get(graph.name)
        if known is None:
            manifest = self._manifest()
            symbols = {symbol.name: symbol for symbol in manifest.symbols}
            argins = {argin.name for argin in manifest.argins}
            known = {name: symbols[name] for name in graph.inputs if name not in argins}
            self._specs[graph.name] = known
        return known

    def _set_output_grads(self, graph: Graph, grads: Sequence[torch.Tensor]) -> None:
        outputs = self._traced[graph.name].outputs if graph.name in self._traced else ()
        if len(grads) > len(outputs):
            raise UsageError(
                f"grad_of_outputs has {len(grads)} gradients, the graph has {len(outputs)} outputs"
            )
        for output, grad in zip(outputs, grads, strict=False):
            if grad is not None:
                output.sn_grad = grad


def _output_names(outputs: Any) -> tuple[tuple[str, str], ...]:
    """Name and region of every output that is wanted."""
    if outputs is None:
        return ()
    if isinstance(outputs, (torch.Tensor, str)):
        outputs = (outputs,)
    if isinstance(outputs, Mapping):
        outputs = outputs.values()
    return tuple(_output_name(output) for output in outputs)


def _output_name(output: Any) -> tuple[str, str]:
    if isinstance(output, SambaTensor) and output.sn_name:
        return output.sn_name, output.sn_region_name
    if isinstance(output, str):
        return output, output
    raise UsageError(
        f"an output is {type(output).__name__} without a name; give tensors that trace_graph "
        "returned, as in model.output_tensors, or names"
    )


def _checked(tensor: torch.Tensor, name: str, symbol: Symbol) -> Array:
    """A tensor's array, if it fits the symbol."""
    with natively():
        fits = matches(symbol, tensor)
        given = f"{tensor.dtype} of shape {list(tensor.shape)}"
    if not fits:
        raise InputError(
            f"input {name!r} is {given}, compiled was {describe(symbol.type, symbol.shape)}: give "
            "that shape and dtype, or compile for this one"
        )
    return to_array(tensor)


def _result(wanted: Fetched, results: Mapping[str, Any]) -> SambaTensor:
    """A fresh tensor with the values of an output."""
    if wanted.computed:
        value = results[wanted.symbol]
        if not hasattr(value, "dtype"):
            raise UsageError(
                f"output {wanted.marks.name!r} is {type(value).__name__}, which no tensor can "
                "hold: run the PEF with samba_onnx.Device"
            )
        tensor = from_array(value)
    else:
        tensor = DEVICE.store(wanted.symbol).read(wanted.symbol)
    return wrapped(tensor, wanted.marks)


def wrapped(tensor: torch.Tensor, marks: Marks) -> SambaTensor:
    """Return a plain tensor as a SambaTensor, as quickly as possible.

    Args:
        tensor: A leaf that nothing else refers to.
        marks: What the SambaTensor carries.
    """
    made: SambaTensor = torch.Tensor._make_subclass(SambaTensor, tensor, False)
    made._marks = marks
    return made
