"""What happens in a run: inputs are placed, steps are executed, outputs are fetched."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from samba_onnx.pef.manifest import Cause
from samba_onnx.runtime.anomaly import check_outputs, input_anomaly
from samba_onnx.runtime.contents import Contents
from samba_onnx.runtime.engine.steps import DeviceStep
from samba_onnx.runtime.exchanges import ExchangeStep
from samba_onnx.runtime.inputs import own_copy
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.mini_batches import each_batch
from samba_onnx.runtime.plans import Bound, RunPlan
from samba_onnx.runtime.profile import CallTime, Profile
from samba_onnx.runtime.reductions import Reductions
from samba_onnx.runtime.registers import Registers
from samba_onnx.runtime.requests import RunRequest
from samba_onnx.runtime.residency import Residency
from samba_onnx.runtime.schedule import GraphSchedule, Step


class Execution:
    """Executes steps on the values of one device."""

    def __init__(
        self,
        contents: Contents,
        values: Residency,
        memory: DeviceMemory,
        reductions: Reductions,
        profile: Profile | None,
    ) -> None:
        """Take the parts of a device; ``profile`` is filled with the times of single calls."""
        self._reductions = reductions
        self._contents = contents
        self._values = values
        self._memory = memory
        self._profile = profile

    def take_input(self, schedule: GraphSchedule, name: str, value: Any) -> None:
        """Put an input where its readers are.

        Args:
            schedule: Schedule of the graph that is run.
            name: Name of the input.
            value: Checked; may share the user's memory.
        """
        call = schedule.rdu_readers.get(name)
        if call is None:
            # What the device may have is of another graph's run, and old by now.
            self._values.written_on_host(name, own_copy(value))
            return
        self._values.upload(name, value, Cause.INPUT, call)
        if name in schedule.host_readers or name in schedule.graph.outputs:
            self._values.keep_on_host(name, own_copy(value))
        else:
            # So is what the host may have.
            self._values.release_host((name,))

    def execute_all(
        self,
        plan: RunPlan,
        series: Sequence[Mapping[str, Any]],
        registers: Registers,
        request: RunRequest,
    ) -> None:
        """Execute all steps of a plan, for every mini-batch where there are several.

        Args:
            plan: What is executed.
            series: Argins of every mini-batch, from ``argin_series``.
            registers: Where these are set.
            request: Says whether to look for numbers that are none, as ``watch`` does, and how
                gradients are combined with those of other replicas.

        Raises:
            AnomalyError: A step wrote a NaN or an infinite number.
            ExecutionError: An operator failed.
        """
        execute, reduction = self.watch if request.single else self.execute, request.reduction
        for numbers in each_batch(plan, self._memory, series):
            registers.set(numbers)
            run = self._reductions.begin(plan.reductions, reduction)
            for number, bound in enumerate(plan.steps):
                if run is not None:
                    run.before(number)
                execute(plan.schedule, bound)
            if run is not None:
                run.before(len(plan.steps))
            if plan.reductions is not None:
                self._reductions.note(plan.reductions, reduction)

    def execute(self, schedule: GraphSchedule, bound: Bound) -> None:
        """Execute a step, with the copies that it needs before and after.

        Args:
            schedule: Schedule of the graph that is run.
            bound: The step with its session.

        Raises:
            ExecutionError: An operator failed.
        """
        values = self._values
        step, session = bound
        if isinstance(session, DeviceStep):
            for name, call in step.inputs:
                if not values.is_on_device(name):
                    values.upload(name, values.host_value(name), Cause.FALLBACK, call)
            # Before the clock is read: to prepare a session is no part of the time of a call.
            if not isinstance(session, ExchangeStep):
                session.prepare()
            begin = time.perf_counter()
            session.run()
            seconds = time.perf_counter() - begin
            values.forget(step.hidden)
            values.written_on_device(step.outputs)
            if isinstance(session, ExchangeStep):
                values.enter_exchange(
                    step.outputs[0], session.sent_bytes, session.steps, step.calls[0]
                )
        else:
            for name, call in step.inputs:
                if not values.is_on_host(name):
                    values.keep_on_host(name, values.download(name, Cause.FALLBACK, call))
            begin = time.perf_counter()
            results = session.run({name: values.host_value(name) for name, _ in step.inputs})
            seconds = time.perf_counter() - begin
            values.forget(step.hidden)
            for name, result in zip(step.outputs, results, strict=True):
                values.written_on_host(name, result)
                # Sections of later runs read a resident on the device, which is where it lives.
                if name in self._contents.residents:
                    values.upload(name, result, Cause.FALLBACK, step.calls[-1])
        if self._profile is not None:
            self._profile.add(schedule.graph.name, _call_time(schedule, step, seconds))

    def watch(self, schedule: GraphSchedule, bound: Bound) -> None:
        """Execute a step as ``execute`` does, and look for numbers that are none in its outputs.

        Args:
            schedule: Schedule of the graph that is run.
            bound: The step with its session.

        Raises:
            AnomalyError: The step wrote a NaN or an infinite number.
            ExecutionError: An operator failed.
        """
        blamed = input_anomaly(bound[0], self.peek)
        self.execute(schedule, bound)
        check_outputs(bound[0], self._contents.symbol, self.peek, blamed)

    def fetch(self, plan: RunPlan, name: str) -> Any:
        """Return an output to the user, copied from the device if the host does not have it.

        Args:
            plan: What was executed.
            name: Name of the output.
        """
        values = self._values
        if values.is_on_host(name):
            value = values.host_value(name)
            # What the host keeps for later runs must not be shared with the user.
            return value if plan.whole and name in plan.results else own_copy(value)
        if values.is_on_device(name):
            return values.download(name, Cause.OUTPUT, plan.schedule.producers.get(name))
        return self._contents.constant(name)

    def peek(self, name: str) -> Any:
        """Return a value without copying it over the link, to look at it only."""
        # The host may have an older one: what was uploaded since is on the device only.
        if self._values.is_on_device(name):
            return self._memory.tensor(name).load()
        return self._values.host_value(name)


def _call_time(schedule: GraphSchedule, step: Step, seconds: float) -> CallTime:
    (call,), (stage,) = step.calls, step.stages
    modelled = schedule.rdu_calls.get(call)
    return CallTime(
        call=call,
        stage=stage.id,
        name=stage.name,
        on_rdu=step.on_rdu,
        executions=1,
        measured_seconds=seconds,
        fastest_seconds=seconds,
        median_seconds=seconds,
        modelled_seconds=None if modelled is None else modelled.seconds,
        modelled_launch_seconds=None if modelled is None else modelled.launch,
    )
