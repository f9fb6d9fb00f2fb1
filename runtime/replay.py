"""A run that was made before, ready to be made again with other values.

What a run copies and executes depends on the selection of calls, on the names of its inputs and
outputs, and on where every value is. While none of these changes, a run need not find them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from samba_onnx.pef.manifest import Cause, Transfer
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.engine.steps import DeviceStep
from samba_onnx.runtime.ledger import Ledger
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.plans import RunPlan
from samba_onnx.runtime.reducing import GradientReduction
from samba_onnx.runtime.reductions import Reductions

_BETWEEN: Final = frozenset({Cause.REDUCE, Cause.COLLECTIVE})
"""Causes of copies between RDUs, which come and go as steps do."""


@dataclass(frozen=True)
class Replay:
    """Copies and steps of a run whose inputs all go to the device and whose outputs all come from it."""

    inputs: tuple[str, ...]
    """Names, in the order of the graph's inputs."""
    places: tuple[Callable[[Array], None], ...]
    """Copy the inputs to the device, in the same order."""
    steps: tuple[Callable[[], None], ...]
    outputs: tuple[tuple[str, Callable[[], Array]], ...]
    """Name of each, and what copies it from the device."""
    transfers: tuple[Transfer, ...]
    """The ledger's records of the run, uploads first."""
    ledger: Ledger

    def run(self, arrays: Iterable[Any]) -> dict[str, Any]:
        """Copy, execute and copy back.

        Args:
            arrays: Checked, in the order of ``inputs``.

        Returns:
            Fresh host arrays by name.

        Raises:
            ExecutionError: An operator failed.
        """
        for place, array in zip(self.places, arrays, strict=True):
            place(array)
        self.execute()
        return {name: fetch() for name, fetch in self.outputs}

    def execute(self) -> None:
        """Execute with inputs that were copied to the device already; enter all copies.

        Raises:
            ExecutionError: An operator failed.
        """
        try:
            for step in self.steps:
                step()
        except BaseException:
            # The inputs were copied, and their records come first; no output was.
            self.ledger.enter_run(self.transfers[: len(self.inputs)])
            raise
        self.ledger.enter_run(self.transfers)


def make_replay(
    plan: RunPlan,
    inputs: Sequence[str],
    outputs: Sequence[str],
    memory: DeviceMemory,
    ledger: Ledger,
    reductions: Reductions,
    reduction: GradientReduction | None,
) -> Replay | None:
    """Return the last run as one that can be replayed.

    Args:
        plan: What was executed.
        inputs: Names of the inputs that were given.
        outputs: Names of the outputs that were fetched.
        memory: The device's memory.
        ledger: Whose last run it was.
        reductions: What combined its gradients with those of other replicas.
        reduction: How; None for a run of one device.

    Returns:
        The replay; None if values passed over the link in any other way than from inputs to the
        device, from the device to outputs, and to reduce the gradients of this run.
    """
    schedule = plan.schedule
    steps = tuple(session for _, session in plan.steps if isinstance(session, DeviceStep))
    # Of such an input the host keeps a copy, too, which a replay does not make.
    stays = any(name in schedule.host_readers or name in schedule.graph.outputs for name in inputs)
    transfers = ledger.run()
    copies = [(name, Cause.INPUT) for name in inputs] + [(name, Cause.OUTPUT) for name in outputs]
    others = [(move.symbol, move.cause) for move in transfers if move.cause not in _BETWEEN]
    if len(steps) != len(plan.steps) or stays or others != copies:
        return None
    executed: list[Callable[[], None]] = [step.run for step in steps]
    if plan.reductions is not None:
        # What it reduces depends on the runs before: the next time its copies may be others.
        if not plan.reductions.is_fixed:
            return None
        executed = reductions.interleaved(executed, plan.reductions, reduction)
    return Replay(
        tuple(inputs),
        tuple(memory.tensor(name).storing() for name in inputs),
        tuple(executed),
        tuple((name, memory.tensor(name).loading()) for name in outputs),
        transfers,
        ledger,
    )
