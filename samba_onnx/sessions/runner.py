"""Running for the session: tensors go in and come out, the device does the rest."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import torch
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.optim import HyperparameterValue
from samba_onnx.pef.manifest import Graph
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.plans import RunPlan
from samba_onnx.runtime.prepared import PreparedRun
from samba_onnx.runtime.reducing import GradientReduction
from samba_onnx.runtime.requests import whole_request
from samba_onnx.sessions.data_parallel import DataParallel
from samba_onnx.sessions.hyperparameters import NO_NUMBERS
from samba_onnx.sessions.loaded import LoadedProgram
from samba_onnx.sessions.profiler import RUN, Profiler, event_name
from samba_onnx.sessions.run_arguments import RunArguments
from samba_onnx.sessions.run_values import fetched_outputs, input_arrays, output_tensor
from samba_onnx.sessions.shortcuts import Shortcut, make_shortcut
from samba_onnx.sessions.traced import TracedGraph
from samba_onnx.sessions.traced_state import TracedState
from samba_onnx.sessions.turns import TURN, in_turn
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.inputs import by_name

LOGGER: Final = logging.getLogger(__name__)

_LISTS: Final = (list, tuple)
_MARKS: Final = attrgetter("_marks")
_NAME: Final = attrgetter("_marks.name")
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

    def repeat(
        self,
        inputs: Any,
        outputs: Any,
        numbers: Any,
        section_types: Sequence[str],
        train: bool,
        graph_name: str | None,
    ) -> _Outputs | None:
        """Make a run of one device that was made before; None, and nothing was done, for any other.

        Values alone, because on a small model a record takes as long to make as an operator to execute.

        Args:
            inputs: As ``RunArguments`` has them, like all that follows; those that it has besides are the usual ones.
            outputs: Tensors whose values are wanted.
            numbers: Hyperparameters by name.
            section_types: Types of sections to execute.
            train: Whether dropouts drop values.
            graph_name: The graph to run; None for the only one.

        Returns:
            The values asked for, in that order.
        """
        request = self._request(inputs, outputs, section_types, graph_name)
        return None if request is None else self._repeat(request, inputs, outputs, numbers, train)

    def run(self, arguments: RunArguments) -> _Outputs:
        """Make a run.

        Args:
            arguments: What ``SambaSession.run`` was given.

        Returns:
            The values asked for, in that order.
        """
        asked = arguments.resolved()
        inputs, outputs = asked.inputs, asked.outputs
        reduction = self._parallel.reduction(
            asked.data_parallel, asked.data_parallel_mode, asked.reduce_on_rdu
        )
        request = None
        if asked.is_plain:
            types, graph_name = asked.section_types, asked.graph_name
            request = self._request(inputs, outputs, types, graph_name, reduction)
        # Replicas of a new group must meet before any run is repeated.
        ready = reduction is None or self._parallel.is_joined(self._program.device)
        if request is not None and ready:
            results = self._repeat(request, inputs, outputs, asked.numbers, asked.train)
            if results is not None:
                return results
        event = self._profiler.start_event(event_name(asked.section_types))
        with TURN.mutex:
            device = self._program.required_device()
            graph = self._program.graph(asked.graph_name)
            fetches = fetched_outputs(graph, self._state.graphs.get(graph.name), outputs)
            arrays = self._arrays(graph, inputs)
            computed = [output.symbol for output in fetches if output.computed]
            prepared = device.prepare(asked.request(graph.name, arrays, computed, reduction))
            self._look_at_model(prepared.plan)
            self._parallel.join(device, reduction, prepared.plan)
            values = self._execute(prepared, arrays, asked)
            results = tuple(output_tensor(output, values) for output in fetches)
            self._program.unread.ran(prepared.plan, outputs)
            if request is not None:
                self._make_shortcut(request, inputs, outputs, results)
        self._profiler.end_event(event)
        return results

    @in_turn
    def reset_random_generator(self) -> None:
        """Let dropouts draw the masks again that they drew after ``trace_graph``."""
        self._program.hyperparameters.reset_random()

    def _request(
        self,
        inputs: Any,
        outputs: Any,
        section_types: Sequence[str],
        graph_name: str | None,
        reduction: GradientReduction | None = None,
    ) -> tuple[Hashable, ...] | None:
        """Return what a run without further restrictions is prepared by; None unless all it has are SambaTensors."""
        if not (
            type(inputs) in _LISTS and type(outputs) in _LISTS and type(section_types) in _LISTS
        ):
            return None
        try:
            request = whole_request(
                graph_name or self._program.only_graph,
                tuple(map(_NAME, inputs)),
                tuple(map(_NAME, outputs)),
                tuple(section_types) if section_types else None,
                reduction,
            )
        except AttributeError:  # Names, or tensors of torch.
            return None
        return self._in_the_pef(request) if self._state.renamed else request

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
        self, prepared: PreparedRun, arrays: Mapping[str, Array], asked: RunArguments
    ) -> dict[str, Any]:
        """Make a prepared run; what it was given persists when it has succeeded."""
        checked, argins = self._scalars(prepared.plan, asked.numbers, asked.train)
        if asked.output_grads is not None:
            self._set_output_grads(prepared.plan.schedule.graph, asked.output_grads)
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
        request: tuple[Hashable, ...],
        inputs: Sequence[SambaTensor],
        outputs: Sequence[SambaTensor],
        numbers: Any,
        train: bool,
    ) -> _Outputs | None:
        """Make a run that has a shortcut; None, and nothing was done, if there is none or it does not fit."""
        loaded = self._program.device
        # The events that a profiler measures are those of the long way.
        if loaded is None or self._profiler.active:
            return None
        # One turn: until the run is over, no other thread may move what was found in its place.
        with loaded.lock.mutex:
            prepared = loaded.runs.ready(request)
            if prepared is None or prepared.shortcut is None:
                return None
            shortcut: Shortcut = prepared.shortcut
            sources = shortcut.sources(inputs, list(map(_MARKS, outputs)))
            if sources is None:
                return None
            # Only now: the long way looks at the model, too, and each warning is said once.
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
            step=plan.updates,
            batches=plan.batches,
            replica=self._parallel.rank,
        )
        return checked, argins

    def _note(self, plan: RunPlan, checked: Mapping[str, HyperparameterValue]) -> None:
        """Note that a run succeeded: what it was given persists."""
        self._program.hyperparameters.keep(
            checked, forward=plan.goes_forward, step=plan.updates, batches=plan.batches
        )
        if self._program.overwrites is not None:
            self._program.overwrites.ran(plan)

    def _in_the_pef(self, request: Any) -> Any:
        """Return a request with the PEF's names of tensors."""
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
            is_noted = bool(self._program.hyperparameters.names) or prepared.plan.goes_backward
            prepared.shortcut = make_shortcut(
                device, prepared, inputs, outputs, results, is_noted=is_noted
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
