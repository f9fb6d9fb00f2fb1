"""How several RDUs pass values to each other: every one waits for all, and then has what all of them gave."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from samba_onnx.errors import InternalError, LostRduError, UsageError
from samba_onnx.pef.manifest import Section
from samba_onnx.pef.sharding import CollectiveKind, Parallelism
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.engine.steps import DeviceStep
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.schedule import Step
from samba_onnx.runtime.shards import assembled

if TYPE_CHECKING:
    from samba_onnx.runtime.engine.protocol import BoundComputation

__all__ = ["Exchange", "ExchangeStep", "Rdu", "refuse_unless_member"]


class Exchange:
    """The meeting point of all RDUs of a program; each has a thread of its own."""

    def __init__(self, rdus: int) -> None:
        """Begin with nobody waiting.

        Args:
            rdus: Number of RDUs.
        """
        self._barrier = threading.Barrier(rdus)
        self._given: list[Array | None] = [None] * rdus

    def meet(self, rdu: int, array: Array) -> list[Array]:
        """Wait for all others, and return what each of them gave, in the order of the RDUs.

        Args:
            rdu: Number of the RDU that calls.
            array: What it gives. Nobody changes it before all have met once more.

        Raises:
            LostRduError: Another RDU failed.
        """
        try:
            self._given[rdu] = array
            self._barrier.wait()
            # Copied between two meetings: after the second one the others may change what they gave.
            given = [each.copy() for each in self._given if each is not None]
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise LostRduError("another RDU failed before an exchange") from None
        return given

    def give_up(self) -> None:
        """Let nobody wait for an RDU that failed."""
        self._barrier.abort()

    def renew(self) -> None:
        """Begin anew, when nobody waits."""
        self._barrier.reset()


@dataclass(frozen=True)
class Rdu:
    """One of several RDUs that execute a program together."""

    number: int
    """Its number, from 0."""
    exchange: Exchange
    """Where it meets the others."""


def refuse_unless_member(parallel: Parallelism | None, rdu: Rdu | None) -> None:
    """Refuse to run a program of several RDUs on one, and the other way round.

    Args:
        parallel: How the program was cut.
        rdu: The RDU that is to run it; None for one that stands alone.

    Raises:
        UsageError: They do not fit.
    """
    if (parallel is None) is not (rdu is None):
        count = 1 if parallel is None else parallel.rdus
        raise UsageError(
            f"the PEF was compiled for {count} RDU{'s' if count > 1 else ''}: open it with "
            "samba_onnx.runtime.parallel_device.open_device"
        )


class ExchangeStep(DeviceStep):
    """A collective, which no engine knows: reads and writes device memory, and meets the other RDUs."""

    def __init__(self, step: Step, memory: DeviceMemory, rdu: Rdu) -> None:
        """Take the one section that exchanges.

        Args:
            step: A step of one section with a collective.
            memory: The memory of this RDU.
            rdu: This RDU.
        """
        (section,) = step.stages
        assert isinstance(section, Section)
        assert section.collective is not None
        self._collective = section.collective
        self._before = memory.tensor(section.inputs[0])
        self._after = memory.tensor(section.outputs[0])
        self._sharded = self._before.symbol.sharded
        self._rdu = rdu
        self.sent_bytes = 0
        """What this RDU sent in the last run of the step."""

    @property
    def steps(self) -> int:
        """How many messages waited for each other."""
        return self._collective.steps

    @property
    def frozen(self) -> frozenset[str]:
        """Inputs that the step was prepared with: none."""
        return frozenset()

    def prepare(self) -> BoundComputation:
        """Refuse: there is nothing to prepare, and nobody asks for it.

        Raises:
            InternalError: Always.
        """
        raise InternalError("an exchange has nothing to prepare: please report this")

    def forget_values(self) -> None:
        """Note that an input changed, which is nothing to an exchange."""

    def run(self) -> None:
        """Exchange.

        Raises:
            LostRduError: Another RDU failed.
        """
        own = self._before.load()
        given = self._rdu.exchange.meet(self._rdu.number, own)
        if self._collective.kind is CollectiveKind.ALL_GATHER:
            # Round the ring each RDU passes on every part but one: as much as it lacks.
            whole = assembled(given, self._sharded)
            self.sent_bytes = _bytes(whole.size - own.size, self._after.element.bits)
        else:
            # All RDUs add in the order of their numbers, so that they have the same bits.
            whole = _sum(given)
            # Each part goes round a ring once to be added up, and once more to be handed out.
            times = 1 if self._collective.direct else 2
            piece = whole.size if self._collective.direct else -(-whole.size // len(given))
            self.sent_bytes = times * (len(given) - 1) * _bytes(piece, self._after.element.bits)
        self._after.store(whole)


def _sum(arrays: Collection[Array]) -> Array:
    """Return a sum in the type of its summands, rounded once: narrow floats are added in float32."""
    first, *others = arrays
    narrow = first.dtype.itemsize < 4 and first.dtype.kind not in "iub"
    total = first.astype(np.float32) if narrow else first.copy()
    for other in others:
        total += other
    return total.astype(first.dtype) if narrow else total


def _bytes(elements: int, bits: int) -> int:
    return -(-elements * bits // 8)
