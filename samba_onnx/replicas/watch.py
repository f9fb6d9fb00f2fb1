"""The watch of each replica over the others: who is lost is named, and nobody waits for it.

A thread tells the others ten times a second, through the store of their group, that this process
runs, where its program is and what it waits for, and reads the same of them. Whoever waits for a
replica that died, hangs, raised or left gets a :class:`~samba_onnx.errors.ReplicaError`; a program
that waits where this product cannot raise, in a function of ``torch.distributed``, is ended with a line.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from samba_onnx.errors import ReplicaError, UsageError
from samba_onnx.replicas.meeting import meet
from samba_onnx.replicas.states import (
    Fault,
    Peer,
    Position,
    ReplicaState,
    described,
    find_fault,
    first_line,
    raising_frames,
)
from samba_onnx.safety.processes import ProcessIdentity
from samba_onnx.safety.system import die_with
from samba_onnx.version import __version__

BEFORE_ENDING: Final[list[Callable[[], Any]]] = []
"""Called before a process is ended that waits for a lost replica."""

_SECONDS: Final = 0.1
"""Between two beats, for up to 16 replicas; more of them beat less often, for one store serves all."""
_TIMEOUT: Final = 60.0
_EXPLAINING: Final = 1.5
"""Seconds in which a connection that broke should find its reason."""
_RAISING: Final = 0.5
"""Seconds in which torch may raise by itself, before a process that waits in it is ended."""
_STORE: Final = timedelta(seconds=10)
"""In which the store must answer."""
_SLICE: Final = timedelta(seconds=0.1)
_NOBODY: Final = -1
"""Stands for the rank of a fault that is no replica's."""
_GRACE: Final = 5.0
"""Seconds that handlers have when a process is ended."""


def hang_timeout() -> float:
    """Return the seconds after which a replica that does nothing counts as hanging; infinite for never.

    Raises:
        UsageError: The environment variable ``CCL_TIMEOUT`` is no number of seconds.
    """
    text = os.environ.get("CCL_TIMEOUT", "")
    try:
        seconds = float(text or _TIMEOUT)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise UsageError(
            f"the environment variable CCL_TIMEOUT is {text!r}; give the seconds after which a rank "
            "that does nothing counts as hanging, or 0 for no limit"
        )
    return seconds or math.inf


class ReplicaWatch:
    """What one process knows of the others of its group, and tells them."""

    def __init__(self) -> None:
        """Meet the others, and begin to watch; all processes of the default group do so at once.

        Raises:
            UsageError: Replicas differ in what must be the same, or ``CCL_TIMEOUT`` is wrong.
            ReplicaError: Some do not come.
        """
        self._timeout = hang_timeout()
        self._identity = ProcessIdentity.own()
        self.rank, size = dist.get_rank(), dist.get_world_size()
        # Whoever keeps a group keeps its threads running, after the program has destroyed it too.
        self._group = weakref.ref(dist.group.WORLD)
        facts = {**asdict(self._identity), "samba_onnx": __version__, "torch": torch.__version__}
        # A connection of its own: one that waits keeps others waiting that use the same.
        store: Any = dist.distributed_c10d._get_default_store()
        self._store, known = meet(
            store.clone(), self.rank, size, facts, alike=("samba_onnx", "torch")
        )
        self._store.set_timeout(_STORE)
        names = ("host", "pid", "realm", "started")
        self._peers = [
            Peer(rank, ProcessIdentity(**{name: each[name] for name in names}))
            for rank, each in enumerate(known)
            if rank != self.rank
        ]
        self._pause = _SECONDS * max(1.0, size / 16)
        self._lock = threading.RLock()
        self._state = ReplicaState()
        self._position = Position(threading.get_ident())
        self._label = ""
        self._since: float | None = None
        self._is_sliced = False
        """Whether the program looks ten times a second whether somebody is lost."""
        self._has_spoken = False
        self._fault_since = 0.0
        self.fault: Fault | None = None
        """What is wrong, once it is known."""
        self.is_over = False
        """Whether the group was left."""
        self._terminated, self.wake = os.pipe()
        """Where the numbers of signals are written, for the watch to hear of SIGTERM."""
        # torchrun ends its processes by signals; if it is killed itself,
        # nobody else would end them.
        if "TORCHELASTIC_RUN_ID" in os.environ:
            die_with(os.getppid())
        self._thread = threading.Thread(target=self._run, name="replica-watch", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def waiting(self, call: str) -> Iterator[None]:
        """Say what this process waits for in a block.

        Args:
            call: The call, the same text on all replicas.

        Raises:
            ReplicaError: The connection broke, and this names the replica that is lost.
        """
        with self._lock:
            self._position.thread = threading.get_ident()
            self._label, self._since = call, time.monotonic()
            self._state = replace(self._state, number=self._state.number + 1)
        try:
            self.check()
            yield
        except RuntimeError as error:
            if isinstance(error, ReplicaError):
                raise
            self.explain()
            raise self._error(f"the connection broke ({first_line(error)})") from error
        finally:
            with self._lock:
                self._label, self._since = "", None

    def wait(self, work: Any) -> None:
        """Wait until a collective is done, or somebody is lost.

        Args:
            work: What ``torch.distributed`` returned with ``async_op=True``.

        Raises:
            ReplicaError: A replica died, hangs, raised or left.
        """
        self._is_sliced = True
        try:
            while not _is_done(work):
                self.check()
            # One that was given up may have come all the same; the others end.
            self.check()
        finally:
            self._is_sliced = False

    def check(self) -> None:
        """Return if nothing is wrong.

        Raises:
            ReplicaError: A replica is lost.
        """
        if self.fault is not None:
            raise self._error("")

    def explain(self) -> None:
        """Wait a moment until it is known who is lost; what broke may be told by others first.

        Raises:
            ReplicaError: It is known.
        """
        ends = time.monotonic() + _EXPLAINING
        while time.monotonic() < ends:
            self.check()
            self._careful_round(is_broken=True)
            time.sleep(_SECONDS / 2)
        self.check()

    def tell_end(self, end: str) -> None:
        """Tell the others that this process ends.

        Args:
            end: How, as ``ended`` or ``raised ValueError: ...``.
        """
        with self._lock, contextlib.suppress(RuntimeError):
            # The first word counts: what follows it is only its consequence.
            if not self.is_over and self.fault is None and not self._state.end:
                self._state = replace(self._state, end=end, beat=self._state.beat + 1)
                self._publish()

    def failed_at(self, error: BaseException) -> None:
        """Take the place where an exception was raised for that where the program is.

        Args:
            error: It ends the program.
        """
        self._position.frozen = raising_frames(error)

    def is_of_current_group(self) -> bool:
        """Return whether the group that is watched is the default group still."""
        return dist.is_initialized() and dist.group.WORLD is self._group()

    def stop(self) -> None:
        """End the watch.

        The interpreter may only end without its thread: one that is in the store then takes the process
        with it, by a signal.
        """
        self.is_over = True
        with contextlib.suppress(OSError):
            os.write(self.wake, b"\0")
        self._thread.join(_GRACE)

    def speak(self) -> None:
        """Write the one line that says who is lost, unless it was written."""
        with self._lock:
            if self._has_spoken or self.fault is None:
                return
            self._has_spoken = True
            line = self._line()
        # In one write, since all replicas may have the same terminal, and
        # without the lock of a stream.
        os.write(2, f"{line}\n".encode())

    def _error(self, broken: str) -> ReplicaError:
        with self._lock:
            if self.fault is None:
                self.fault = Fault(_NOBODY, broken)
            rank = self.fault.rank
            return ReplicaError(self._line(), rank=None if rank == _NOBODY else rank)

    def _line(self) -> str:
        assert self.fault is not None, "nothing is wrong"
        rank, text = self.fault
        who = next((peer.name for peer in self._peers if peer.rank == rank), "")
        own = described(self.rank, self._identity)
        if rank == self.rank:
            return f"{own}: the other ranks gave this one up: it {text}"
        waits = self._label or self._state.waits
        doing = f"waited in {waits}, at" if waits else "was at"
        doing = f"{doing} {self._state.place}"
        return f"{own}: {f'{who} {text}'.strip()} while this rank {doing}"

    def _publish(self) -> None:
        self._store.set(f"state/{self.rank}", self._state.encoded())

    def _careful_round(self, *, is_broken: bool = False) -> None:
        try:
            self._round(is_broken)
        except RuntimeError:
            self._lose_the_store()

    def _round(self, is_broken: bool) -> None:
        """Tell the others of this process, hear of them, and see whether something is wrong."""
        with self._lock:
            if self.is_over:
                return
            self._state = self._position.noted(self._state, self._label)
            if self._state.waits and self._since is None:
                self._since = time.monotonic()
            elif not self._state.waits:
                self._since = None
            self._publish()
            self._hear()
            if self.fault is not None:
                return
            waiting = None if self._since is None else time.monotonic() - self._since
            self.fault = find_fault(self._peers, self._state, waiting, self._timeout)
            if self.fault is None and is_broken:
                self.fault = self._silent()
            if self.fault is not None:
                self._blame(self.fault)

    def _hear(self) -> None:
        # multi_get would wait for what nobody has written yet.
        known = [
            peer
            for peer in self._peers
            if peer.state.beat or self._store.check([f"state/{peer.rank}"])
        ]
        texts = self._store.multi_get([f"state/{peer.rank}" for peer in known]) if known else []
        for peer, text in zip(known, texts, strict=True):
            peer.hear(ReplicaState.decoded(text))

    def _silent(self) -> Fault | None:
        """Return who is silent; where a connection broke, half a second without a beat is long."""
        now = time.monotonic()
        silent = [p for p in self._peers if now - p.heard > 5 * self._pause and not p.state.end]
        # Where several are silent it may be the network of this machine that is lost.
        return Fault(silent[0].rank, "died, or its machine is lost") if len(silent) == 1 else None

    def _blame(self, fault: Fault) -> None:
        self._fault_since = time.monotonic()
        self._state = replace(self._state, blames=fault.rank, fault=fault.text)
        with contextlib.suppress(RuntimeError):
            self._publish()
        # One that is stopped would stay behind: it hears no signal before it goes on.
        for peer in self._peers:
            if peer.rank == fault.rank:
                with contextlib.suppress(OSError):
                    peer.identity.end_if_stopped()

    def _run(self) -> None:
        last = time.monotonic()
        while not self.is_over:
            # This process was stopped or had no CPU, so that it could hear of nobody.
            if time.monotonic() - last > self._timeout / 2:
                for peer in self._peers:
                    peer.forgive()
            last = time.monotonic()
            self._step()
            ready, _, _ = select.select([self._terminated], [], [], self._pause)
            if ready and signal.SIGTERM in os.read(self._terminated, 64):
                self._terminate()

    def _step(self) -> None:
        if not self.is_of_current_group():
            self.tell_end("ended")
            self.is_over = True
            return
        self._careful_round()
        if self.fault is None:
            return
        # torch's own waits cannot be broken off: it may raise for a moment,
        # and then the process ends.
        waits_in_torch = bool(self._state.waits) and not self._is_sliced
        is_late = time.monotonic() - self._fault_since > _RAISING
        if self.fault.rank == self.rank or (waits_in_torch and is_late):
            self._end(1)

    def _lose_the_store(self) -> None:
        """See who is lost when the store is, which replica 0 keeps, or its launcher."""
        with self._lock:
            self._state = self._position.noted(self._state, self._label)
            # A program that computes does without the store: replica 0 may have
            # ended, and in good order.
            if not self._state.waits or self.fault is not None:
                return
            dead = [peer.rank for peer in self._peers if peer.is_dead]
            gone = "the store of all ranks, in rank 0 or its launcher, is gone"
            self.fault = Fault(dead[0], "died") if dead else Fault(_NOBODY, gone)
            self._fault_since = time.monotonic()

    def _terminate(self) -> None:
        """End as a signal asks; launchers end those that are left, which first say who is lost."""
        ends = time.monotonic() + 3 * _SECONDS
        while self.fault is None and not self._state.end and time.monotonic() < ends:
            self._careful_round()
            time.sleep(_SECONDS / 4)
        if self.fault is None:
            self.tell_end("was told to end")
            # As shells report a process that a signal has ended.
            os._exit(128 + signal.SIGTERM)
        self._end(128 + signal.SIGTERM)

    def _end(self, status: int) -> None:
        """End this process, whatever its program waits for."""
        self.speak()
        # In a thread, so that a handler that hangs holds up nothing.
        handlers = threading.Thread(target=_call_all, daemon=True)
        handlers.start()
        handlers.join(_GRACE)
        os._exit(status)


def _is_done(work: Any) -> bool:
    """Wait a tenth of a second for a collective; return whether it is done."""
    try:
        work.wait(_SLICE)
    except RuntimeError:
        # A wait whose time is up raises as well: only a collective that is completed has failed.
        if work.is_completed():
            raise
        return False
    return True


def _call_all() -> None:
    for function in BEFORE_ENDING:
        with contextlib.suppress(Exception):
            function()
