"""What replicas tell each other about themselves, and what one makes of what it hears."""

from __future__ import annotations

import itertools
import json
import sys
import sysconfig
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import torch

from samba_onnx.safety.processes import Life, ProcessIdentity

_LIBRARIES: Final = (
    str(Path(torch.__file__).parent),
    str(Path(__file__).parents[1]),
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    "<frozen ",
)
"""How paths of code begin that is no program of a user."""
_COLLECTIVES: Final = str(Path(torch.__file__).parent / "distributed")
_ARRIVING: Final = 1.0
"""Seconds in which what a replica sent before it ended must arrive."""


@dataclass(frozen=True)
class ReplicaState:
    """What a replica tells the others again and again."""

    beat: int = 0
    """Grows while the process runs."""
    moves: int = 0
    """Grows while its program gets from one place to another."""
    place: str = ""
    """Where its program is, as ``train.py:12 in step``."""
    waits: str = ""
    """What it waits for; empty if it computes."""
    number: int = 0
    """How many waits of gradients it began."""
    end: str = ""
    """How it ended, as ``raised ValueError: ...``; empty while it runs."""
    blames: int | None = None
    """Which replica is lost, says this one, which ends."""
    fault: str = ""
    """What that one did."""

    def encoded(self) -> str:
        """Return the text that the store keeps."""
        return json.dumps(asdict(self))

    @classmethod
    def decoded(cls, text: bytes) -> ReplicaState:
        """Return what the store keeps."""
        return cls(**json.loads(text))


class Fault(NamedTuple):
    """What is wrong with a replica."""

    rank: int
    text: str
    """What it did, as ``died``."""


@dataclass
class Peer:
    """Another replica, as this one sees it; times are of ``time.monotonic``."""

    rank: int
    identity: ProcessIdentity
    state: ReplicaState = field(default_factory=ReplicaState)
    heard: float = field(default_factory=time.monotonic)
    """When it last gave a sign of life."""
    moved: float = field(default_factory=time.monotonic)
    """When its program was last seen at another place."""
    ended: float = 0.0
    """When it was first seen to have ended in an orderly way; 0 if it was not."""

    @property
    def name(self) -> str:
        """What people call it."""
        return described(self.rank, self.identity)

    def hear(self, state: ReplicaState) -> None:
        """Take in what it tells."""
        now = time.monotonic()
        if state.beat != self.state.beat:
            self.heard = now
        if (state.moves, state.number) != (self.state.moves, self.state.number):
            self.moved = now
        if state.end and not self.ended:
            self.ended = now
        self.state = state

    def forgive(self) -> None:
        """Begin to count anew: this process itself did not run."""
        self.heard = self.moved = time.monotonic()

    @property
    def is_dead(self) -> bool:
        """Whether it ended without a word."""
        told = self.state.end or self.state.blames is not None
        return not told and self.identity.life() is Life.GONE


def described(rank: int, identity: ProcessIdentity) -> str:
    """Return what people call a replica."""
    return f"rank {rank} ({identity.host}, pid {identity.pid})"


def first_line(error: BaseException) -> str:
    """Return how the text of an error begins: native libraries add where they were."""
    return str(error).strip().partition("\n")[0][:300]


def find_fault(
    peers: list[Peer], own: ReplicaState, waiting: float | None, timeout: float
) -> Fault | None:
    """Return what is wrong, the cause before what follows from it.

    Args:
        peers: The other replicas, as they were heard just now.
        own: What this one tells them.
        waiting: Seconds for which it has waited for them; None if it computes.
        timeout: Seconds after which one that does nothing counts as hanging.

    Returns:
        None if nothing is wrong, or nothing that is known yet.
    """
    faults = [_failures(peers), _silences(peers, timeout)]
    if waiting is not None:
        faults.append(_absences(peers, own, waiting, timeout))
    return next(itertools.chain(*faults), None)


def _failures(peers: list[Peer]) -> Iterator[Fault]:
    """Yield who is known to be lost."""
    # What a replica says itself comes first, then that it died: blame only
    # passes on what others saw.
    for peer in peers:
        if peer.state.end.startswith("raised"):
            yield Fault(peer.rank, peer.state.end)
    for peer in peers:
        if peer.is_dead:
            yield Fault(peer.rank, "died")
    for peer in peers:
        if peer.state.blames is not None:
            yield Fault(peer.state.blames, peer.state.fault)


def _silences(peers: list[Peer], timeout: float) -> Iterator[Fault]:
    """Yield who gives no sign of life."""
    now = time.monotonic()
    for peer in peers:
        if not peer.state.end and now - peer.heard > timeout:
            stopped = "is stopped" if peer.identity.life() is Life.STOPPED else "hangs"
            yield Fault(peer.rank, f"{stopped}: no sign of life for {timeout:g} s")


def _absences(
    peers: list[Peer], own: ReplicaState, waiting: float, timeout: float
) -> Iterator[Fault]:
    """Yield who does not come to where this replica waits."""
    now = time.monotonic()
    for peer in peers:
        if peer.ended and min(waiting, now - peer.ended) > _ARRIVING:
            yield Fault(peer.rank, "ended")
    for peer in peers:
        # Both must have been long where they are: the one that waits may have come just now.
        if not peer.ended and min(waiting, now - peer.moved) > timeout:
            if not peer.state.waits:
                yield Fault(peer.rank, f"hangs: {timeout:g} s at {peer.state.place}")
            # One that waits in the same call waits for a third, and is not to blame.
            elif (peer.state.waits, peer.state.number) != (own.waits, own.number):
                yield Fault(peer.rank, f"waits in another call, {peer.state.waits}")


class Position:
    """Where the program of this process is, looked at from another thread."""

    def __init__(self, thread: int) -> None:
        """Look at a thread.

        Args:
            thread: Its identifier.
        """
        self.thread = thread
        self.frozen: list[FrameType] = []
        """Where it was when it failed, the innermost first; empty while it runs."""
        self._last: tuple[tuple[int, int], ...] = ()
        self._moves = 0

    def noted(self, state: ReplicaState, waits: str) -> ReplicaState:
        """Return a state with where the program is now.

        Args:
            state: Where it was.
            waits: What this product waits for; empty if it does not.
        """
        frames = self.frozen or list(_frames(sys._current_frames().get(self.thread)))
        # By instructions, not by lines: a loop within one line moves as well.
        marks = tuple((id(frame.f_code), frame.f_lasti) for frame in frames)
        self._moves += marks != self._last
        self._last = marks
        # A line of the program says more than one of a library that it calls.
        programs = [f for f in frames if not f.f_code.co_filename.startswith(_LIBRARIES)]
        place = next(iter(programs or frames), None)
        return replace(
            state,
            beat=state.beat + 1,
            moves=self._moves,
            place="" if place is None else _shown(place),
            waits=waits or _collective(frames),
        )


def raising_frames(error: BaseException) -> list[FrameType]:
    """Return where an exception came from, the innermost frame first."""
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)][::-1]


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _shown(frame: FrameType) -> str:
    code = frame.f_code
    return f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}"


def _collective(frames: list[FrameType]) -> str:
    """Return which function of ``torch.distributed`` the program called; empty if it is in none."""
    # torch has collectives in a wrapper that logs, whose name tells nothing.
    names = [
        frame.f_code.co_name
        for frame in frames
        if frame.f_code.co_filename.startswith(_COLLECTIVES) and frame.f_code.co_name != "wrapper"
    ]
    return f"torch.distributed.{names[-1]}" if names else ""
