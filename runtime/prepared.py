"""Runs that are prepared once and made many times: the only cache of a device's runs.

What a run copies and executes depends on its request and on where every value is. While neither
changes, a run need not find it out again. A prepared run stops standing for what a new one would
do for one of these reasons, all of which are dealt with here:

- *Values are elsewhere.* A replay is made only where values are as they were when it was recorded;
  in any other place the run takes the long way, and is recorded anew.
- *The host wrote a value that sections have for a constant.* Their sessions are dropped; the next
  run, replayed or not, makes new ones with the new value.
- *The host wrote another value.* What the host keeps of it for fallbacks is part of where values
  are; apart from that the run reads what is there.
- *The device was closed.* Nothing is prepared any more.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from samba_onnx.errors import DeviceError
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.ledger import Ledger
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.memory_runs import HostTensor, MemoryRun, make_memory_run
from samba_onnx.runtime.plans import RunPlan, RunPlanner
from samba_onnx.runtime.reductions import Reductions
from samba_onnx.runtime.registers import Registers
from samba_onnx.runtime.replay import Replay, make_replay
from samba_onnx.runtime.requests import RunRequest
from samba_onnx.runtime.residency import Residency

_MOST_RUNS: Final = 256
"""Prepared runs that are kept; beyond, the oldest is let go."""
_NOWHERE: Final = object()
"""Where values never are."""


@dataclass(eq=False)
class PreparedRun:
    """A request with what it executes."""

    request: RunRequest
    plan: RunPlan
    outputs: tuple[str, ...]
    """Names of the graph outputs that are fetched, each once."""
    replay: Replay | None = None
    """How it is made where values are as they were; None for a run that cannot be replayed."""
    state: object = field(default=_NOWHERE)
    """Where values must be for the replay."""
    shortcut: Any = None
    """What the session keeps with the replay, to make it with as little as possible around it."""


class PreparedRuns:
    """The prepared runs of one device, by request."""

    def __init__(
        self,
        planner: RunPlanner,
        values: Residency,
        memory: DeviceMemory,
        reductions: Reductions,
        ledger: Ledger,
    ) -> None:
        """Begin without any.

        Args:
            planner: Makes what a request executes; it has the sessions.
            values: Knows where every value of the device is.
            memory: The device's memory.
            reductions: Combines gradients with those of other replicas.
            ledger: The device's ledger.
        """
        self._reductions = reductions
        self._planner = planner
        self._values = values
        self._memory = memory
        self._ledger = ledger
        self._runs: dict[tuple[Hashable, ...], PreparedRun] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._runs)

    def ready(self, request: tuple[Hashable, ...]) -> PreparedRun | None:
        """Return the run of a request if it can be replayed now, else None.

        Args:
            request: A RunRequest, or the plain tuple that it equals, which is made more quickly.
        """
        try:
            prepared = self._runs.get(request)
        except TypeError:  # Names that are none; the long way refuses them.
            return None
        if prepared is not None and prepared.state is self._values.state:
            return prepared
        return None

    def prepare(self, request: RunRequest) -> PreparedRun:
        """Return the run of a request, a new one where there is none.

        Args:
            request: What is asked for; its names may be anything.

        Raises:
            UsageError: The graph or an output does not exist, an id is no integer, or both ids and
                types are given.
            ScheduleError: A section, type or call does not exist, or none is left, or one would
                read what an earlier one overwrites.
            ExecutionError: A stage is refused by the engine.
            DeviceError: The device was closed.
        """
        try:
            prepared = self._runs.get(request)
        except TypeError:  # Names that are none; the plan refuses them.
            prepared = None
        if prepared is None:
            self.check_open()
            plan = self._planner.plan(request)
            prepared = PreparedRun(request, plan, plan.checked_outputs(request.outputs))
        return prepared

    def keep(self, prepared: PreparedRun, inputs: Sequence[str], state: object) -> None:
        """Keep a run that was just made the long way, with a replay if it can be replayed.

        Args:
            prepared: What was executed.
            inputs: Names of the inputs that were copied, in order; none of them is an argin.
            state: Where values were before the run; where they are now is asked for here.
        """
        replay = None
        # Where values do not come back to, the next run begins elsewhere. What was copied must be
        # what the next run is given: no default of the model's, and no argin besides.
        if (
            self._values.settle() is state
            and self._planner.merges
            and not prepared.request.single
            and not prepared.plan.batches
            and set(inputs) == set(prepared.request.inputs)
        ):
            replay = make_replay(
                plan=prepared.plan,
                inputs=inputs,
                outputs=prepared.outputs,
                memory=self._memory,
                ledger=self._ledger,
                reductions=self._reductions,
                reduction=prepared.request.reduction,
            )
        prepared.replay = replay
        prepared.state = _NOWHERE if replay is None else state
        prepared.shortcut = None
        if prepared.request not in self._runs:
            if len(self._runs) >= _MOST_RUNS:
                del self._runs[next(iter(self._runs))]
            self._runs[prepared.request] = prepared

    def from_memory(
        self,
        prepared: PreparedRun,
        registers: Registers,
        tensors: Mapping[str, tuple[int, HostTensor, Array]],
    ) -> MemoryRun | None:
        """Return a run that was just made as one whose inputs are copied from the host's memory by address.

        It may be made while the device's lock is held and :meth:`ready` returns the prepared run.

        Args:
            prepared: The run.
            registers: The device's argins.
            tensors: Position, tensor and array of the inputs that it was given, by name.

        Returns:
            None for a run that cannot be replayed, or an array of another type than the device has.
        """
        if prepared.replay is None:
            return None
        return make_memory_run(prepared.plan, prepared.replay, self._memory, registers, tensors)

    def host_wrote(self, names: Collection[str]) -> None:
        """Note that the host gave symbols new values.

        Args:
            names: Names of the symbols; their regions are looked up here.
        """
        self._reductions.host_wrote(names)
        self._planner.forget_values(
            {other for name in names for other in self._values.sharers(name)}
        )

    def close(self) -> None:
        """Forget all runs, and prepare none any more; those that somebody has are not replayed."""
        self._is_closed = True
        for prepared in self._runs.values():
            prepared.replay, prepared.state, prepared.shortcut = None, _NOWHERE, None
        self._runs.clear()

    def check_open(self) -> None:
        """Refuse what needs a device.

        Raises:
            DeviceError: The device was closed.
        """
        if self._is_closed:
            raise DeviceError("the device was closed; make a new one")
