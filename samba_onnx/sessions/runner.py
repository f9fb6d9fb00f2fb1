"""Running for the session: tensors go in and come out, the device does the rest."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import onnx
import torch
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.optim import HyperparameterValue
from samba_onnx.pef.manifest import Graph
from samba_onnx.program.kinds import SectionType
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.plans import RunPlan
from samba_onnx.runtime.prepared import PreparedRun
from samba_onnx.runtime.requests import run_request, whole_request
from samba_onnx.runtime.selection import SectionIds
from samba_onnx.sessions.data_parallel import DataParallel
from samba_onnx.sessions.hyperparameters import NO_NUMBERS
from samba_onnx.sessions.loaded import LoadedProgram
from samba_onnx.sessions.profiler import RUN, Profiler, event_name
from samba_onnx.sessions.run_values import fetched_outputs, input_arrays, output_tensor
from samba_onnx.sessions.shortcuts import Shortcut, make_shortcut
from samba_onnx.sessions.traced import TracedGraph
from samba_onnx.sessions.traced_state import TracedState
from samba_onnx.sessions.turns import TURN
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.inputs import by_name
from samba_onnx.tensor.marks import Marks

LOGGER: Final = logging.getLogger(__name__)

_LISTS: Final = (list, tuple)
_ALL_SECTIONS: Final = ()
"""What a run has for ids when nobody gave any; 0 is a section, not the wish for all."""
_MARKS: Final = attrgetter("_marks")
_NAME: Final = attrgetter("_marks.name")
_MARK_NAME: Final = attrgetter("name")
_Outputs = tuple[SambaTensor, ...]


class Runner:
    """Runs the graphs of the loaded program."""

    def __init__(
        self,
        program: LoadedProgram,
        state: TracedState,
        profiler: Profiler,
        parallel: DataParallel,
    ) -> None:
        """Take what running depends on.

        Args:
            program: Whose graphs are run.
            state: Knows what the tensors of graphs are called.
            profiler: Measures runs.
            parallel: Knows the other replicas of the program.
        """
        self._parallel = parallel
        self._program = program
        self._state = state
        self._profiler = profiler

    def run(
        self,
        inputs: Any,
        outputs: Any,
        numbers: Any = NO_NUMBERS,
        data_parallel: Any = False,
        reduce_on_rdu: bool = False,
        section_ids: SectionIds = (),
        section_types: Sequence[str] = (),
        until_call: int | None = None,
        from_call: int | None = None,
        data_parallel_mode: str = "normal",
        train: bool = True,
        graph_name: str | None = None,
        output_grads: Sequence[torch.Tensor] | None = None,
        detect_anomaly: bool = False,
    ) -> _Outputs:
        """Make a run; see ``SambaSession.run``, whose arguments these are, in its order.

        Args:
            inputs: Tensors by ``sn_name``.
            outputs: Tensors or names whose values are wanted.
            numbers: Hyperparameters by name.
            data_parallel: Whether replicas combine their gradients.
            reduce_on_rdu: Whether devices do that among themselves.
            section_ids: Sections to execute, like the types and calls that follow.
            section_types: Types of sections to execute.
            until_call: The call to stop before.
            from_call: The call to begin with.
            data_parallel_mode: When they combine them.
            train: Whether dropouts drop values.
            graph_name: The graph to run; None for the only one.
            output_grads: Gradients of the outputs, in their order.
            detect_anomaly: Look for NaN and infinite numbers in what sections write.

        Returns:
            The values asked for, in that order.
        """
        if isinstance(inputs, (nn.Module, onnx.ModelProto)):
            # As the documented examples call it: the model first.
            given, inputs, outputs = data_parallel, outputs, numbers or ()
            data_parallel, numbers = given is True, {} if given is True else given or NO_NUMBERS
        request: Any = None
        reduction = self._parallel.reduction(data_parallel, data_parallel_mode, reduce_on_rdu)
        if (
            type(inputs) in _LISTS
            and type(outputs) in _LISTS
            and section_ids is _ALL_SECTIONS
            and type(section_types) in _LISTS
            and not detect_anomaly
            and output_grads is None
            and until_call is None
            and from_call is None
        ):
            try:
                marks = list(map(_MARKS, outputs))
                request = whole_request(
                    graph_name or self._program.only_graph,
                    tuple(map(_NAME, inputs)),
                    tuple(map(_MARK_NAME, marks)),
                    tuple(section_types) if section_types else None,
                    reduction,
                )
            except AttributeError:  # Names, or tensors of torch.
                pass
            else:
                if self._state.renamed:
                    request = self._in_the_pef(request)
                loaded = self._program.device
                # Replicas of a new group must meet before any run is repeated.
                ready = reduction is None or self._parallel.is_joined(loaded)
                if loaded is not None and ready and not self._profiler.active:
                    with loaded.lock.mutex:
                        prepared = loaded.runs.ready(request)
                        if prepared is not None and prepared.shortcut is not None:
                            results = self._repeat(prepared, inputs, marks, numbers, train)
                            if results is not None:
                                return results
        if isinstance(section_types, str):
            section_types = (section_types,)
        elif not isinstance(section_types, Collection):
            # What is gone through twice: None, as for the device, and what can be read once only.
            section_types = tuple(section_types or ())
        event = self._profiler.start_event(event_name(section_types))
        with TURN.mutex:
            device = self._program.required_device()
            graph = self._program.graph(graph_name)
            fetches = fetched_outputs(graph, self._state.graphs.get(graph.name), outputs)
            arrays = self._arrays(graph, inputs)
            prepared = device.prepare(
                run_request(
                    graph.name,
                    arrays,
                    [output.symbol for output in fetches if output.computed],
                    section_ids=section_ids,
                    section_types=section_types,
                    from_call=from_call,
                    until_call=until_call,
                    single=detect_anomaly,
                    reduction=reduction,
                )
            )
            self._look_at_model(prepared.plan)
            self._parallel.join(device, reduction, prepared.plan)
            values = self._execute(prepared, arrays, numbers, train, output_grads)
            results = tuple(output_tensor(output, values) for output in fetches)
            self._program.unread.ran(prepared.plan, outputs)
            if request is not None:
                self._make_shortcut(request, inputs, outputs, results)
        self._profiler.end_event(event)
        return results

    def _look_at_model(self, plan: RunPlan) -> None:
        """Say once what of the model is not as it was traced, or refuse it."""
        traced = self._state.graphs.get(plan.schedule.graph.name)
        if traced is None or traced.watch is None:
            return
        traced.watch.look(plan.section_types)
        if traced.watch.model.training != traced.training:
            self._tell_of_switch(traced, traced.watch.model)

    def _tell_of_switch(self, traced: TracedGraph, model: nn.Module) -> None:
        """Say once that train() or eval() has no effect on what was compiled."""
        before, after = ("train()", "eval()") if traced.training else ("eval()", "train()")
        LOGGER.warning(
            "%s is in %s now, but runs compute what it was compiled for, after %s: %s",
            type(model).__name__,
            after,
            before,
            "give train=False to run without dropouts, or trace a PEF that was compiled after eval()"
            if traced.training
            else "to train, trace a PEF that was compiled after train()",
        )
        # Noted, so that only the next switch is told of again.
        traced.training = model.training

    def _arrays(self, graph: Graph, inputs: Any) -> dict[str, Array]:
        """What the device is given, checked."""
        known = self._program.inputs(graph.name)
        return input_arrays(
            graph,
            self._state.graphs.get(graph.name),
            known,
            by_name(inputs, known),
            self._state.host_inputs,
        )

    def _execute(
        self,
        prepared: PreparedRun,
        arrays: Mapping[str, Array],
        numbers: Any,
        train: bool,
        output_grads: Sequence[torch.Tensor] | None,
    ) -> dict[str, Any]:
        """Make a prepared run; what it was given persists when it has succeeded."""
        checked, argins = self._scalars(prepared.plan, numbers, train)
        if output_grads is not None:
            self._set_output_grads(prepared.plan.schedule.graph, output_grads)
        event = self._profiler.start_event(RUN)
        values = self._program.required_device().execute(prepared, arrays, argins)
        self._profiler.end_event(event)
        self._note(prepared.plan, checked)
        for name in arrays:
            # This run took them along; the next one need not.
            self._state.host_inputs.pop(name, None)
        return values

    def _repeat(
        self,
        prepared: PreparedRun,
        inputs: Sequence[SambaTensor],
        outputs: list[Marks],
        numbers: Any,
        train: bool,
    ) -> _Outputs | None:
        """Make a run that has a shortcut; None, and nothing was done, if it does not fit."""
        shortcut: Shortcut = prepared.shortcut
        sources = shortcut.sources(inputs, outputs)
        if sources is None:
            return None
        self._look_at_model(prepared.plan)
        if not (numbers or shortcut.is_noted):
            return shortcut.run(sources)
        checked, argins = self._scalars(prepared.plan, numbers, train)
        results = shortcut.run(sources, argins)
        self._note(prepared.plan, checked)
        return results

    def _scalars(
        self, plan: RunPlan, numbers: Any, train: bool
    ) -> tuple[Mapping[str, HyperparameterValue], Mapping[str, Any]]:
        """Hyperparameters of a run, checked, and the argins that it sends with them."""
        hyperparameters = self._program.hyperparameters
        checked = hyperparameters.checked(numbers or NO_NUMBERS)
        argins = hyperparameters.argins(
            checked,
            train=train,
            forward=plan.forward_reads,
            step=SectionType.OPT in plan.section_types,
            batches=plan.batches,
            replica=self._parallel.rank,
        )
        return checked, argins

    def _note(self, plan: RunPlan, checked: Mapping[str, HyperparameterValue]) -> None:
        """Note that a run succeeded: what it was given persists."""
        kinds = plan.section_types
        forward, step = SectionType.FWD in kinds, SectionType.OPT in kinds
        hyperparameters = self._program.hyperparameters
        hyperparameters.keep(checked, forward=forward, step=step, batches=plan.batches)
        if self._program.overwrites is not None:
            self._program.overwrites.ran(plan)

    def _in_the_pef(self, request: Any) -> Any:
        """A request with the PEF's names of tensors."""
        graph, inputs, outputs, *rest = request
        traced = self._state.graphs.get(graph)
        if traced is None:
            return request
        return graph, tuple(map(traced.symbol, inputs)), tuple(map(traced.symbol, outputs)), *rest

    def _make_shortcut(
        self,
        request: Any,
        inputs: Sequence[SambaTensor],
        outputs: Sequence[SambaTensor],
        results: Sequence[SambaTensor],
    ) -> None:
        """Remember a run that was just made, if it is as plain as runs mostly are."""
        device = self._program.required_device()
        prepared = device.runs.ready(request)
        if prepared is None or prepared.replay is None or prepared.shortcut is not None:
            return
        # An output that is asked for twice, or read from elsewhere, takes the long way.
        if len(prepared.outputs) == len(outputs):
            names = prepared.request.inputs
            is_noted = (
                bool(self._program.hyperparameters.names)
                or SectionType.BCKWD in prepared.plan.section_types
            )
            prepared.shortcut = make_shortcut(
                device, prepared.replay, names, inputs, outputs, results, is_noted=is_noted
            )

    def _set_output_grads(self, graph: Graph, grads: Sequence[torch.Tensor]) -> None:
        traced = self._state.graphs.get(graph.name)
        outputs = traced.outputs if traced is not None else ()
        if len(grads) > len(outputs):
            raise UsageError(
                f"grad_of_outputs has {len(grads)} gradients, the graph has {len(outputs)} outputs"
            )
        # Not strict: gradients of the first outputs may be given alone.
        for output, grad in zip(outputs, grads, strict=False):
            if grad is not None:
                output.sn_grad = grad
