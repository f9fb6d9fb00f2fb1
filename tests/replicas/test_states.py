"""What a replica makes of what it hears of the others."""

from __future__ import annotations

import dataclasses
import os
import threading
import time

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.replicas.states import Fault, Peer, Position, ReplicaState, find_fault
from samba_onnx.replicas.watch import hang_timeout
from samba_onnx.safety.processes import ProcessIdentity

OWN = ReplicaState(waits="REDUCE", number=4)
ALIVE = ProcessIdentity.own()
DEAD = dataclasses.replace(ALIVE, started="1")
NOW = time.monotonic()


def peer(rank: int, identity: ProcessIdentity = ALIVE, **state: object) -> Peer:
    return Peer(rank, identity, ReplicaState(**state), heard=NOW + 1e6, moved=NOW + 1e6)  # type: ignore[arg-type]


def fault(*peers: Peer, waiting: float | None = 100.0) -> Fault | None:
    return find_fault(list(peers), OWN, waiting, timeout=60.0)


def test_a_state_is_what_was_sent() -> None:
    state = ReplicaState(3, 2, "a.py:1 in f", "REDUCE", 7, "ended", 0, "died")
    assert ReplicaState.decoded(state.encoded().encode()) == state


def test_the_cause_is_named_before_what_follows_from_it() -> None:
    well = peer(1)
    assert fault(well) is None
    died, blaming = peer(2, DEAD), peer(3, DEAD, blames=2, fault="died")
    raised = peer(4, DEAD, end="raised ValueError: x")
    if os.path.exists("/proc/self/stat"):
        assert fault(well, died) == (2, "died")
        assert fault(dataclasses.replace(died, identity=ALIVE)) is None
        # Who ended because another one died is not the one that died.
        assert fault(peer(1, DEAD, blames=3, fault="died"), peer(3)) == (3, "died")
    assert fault(well, blaming) == (2, "died")
    assert fault(blaming, died, raised) == (4, "raised ValueError: x")


def test_one_that_ended_is_missed_only_where_others_wait() -> None:
    ended = peer(1, DEAD, end="ended")
    ended.ended = NOW - 10
    assert fault(ended) == (1, "ended")
    assert fault(ended, waiting=None) is None
    assert fault(ended, waiting=0.5) is None  # what it sent before may be on its way
    silent = dataclasses.replace(ended, heard=NOW - 100)
    assert fault(silent, waiting=None) is None


def test_silence_is_a_fault_whatever_others_do() -> None:
    silent = dataclasses.replace(peer(1), heard=NOW - 100)
    for waiting in (None, 1.0, 100.0):
        assert fault(silent, waiting=waiting) == (1, "hangs: no sign of life for 60 s")


def test_one_that_goes_on_elsewhere_is_waited_for_and_one_that_does_not_is_not() -> None:
    busy = peer(1, place="eval.py:3 in f")
    assert fault(busy) is None
    stuck = dataclasses.replace(busy, moved=NOW - 100)
    assert fault(stuck) == (1, "hangs: 60 s at eval.py:3 in f")
    assert fault(stuck, waiting=59) is None
    same = dataclasses.replace(peer(1, waits="REDUCE", number=4), moved=NOW - 100)
    assert fault(same) is None
    other = dataclasses.replace(peer(1, waits="torch.distributed.barrier"), moved=NOW - 100)
    assert fault(other) == (1, "waits in another call, torch.distributed.barrier")


def test_peers_are_heard() -> None:
    one = Peer(1, ALIVE, heard=0.0, moved=0.0)
    one.hear(ReplicaState(beat=1))
    assert one.heard > 0 == one.moved
    one.hear(ReplicaState(beat=1, moves=1))
    assert one.moved > 0
    assert one.ended == 0
    one.hear(ReplicaState(end="ended"))
    assert one.ended > 0


def test_a_position_is_where_a_program_is() -> None:
    here, go = threading.Event(), threading.Event()

    def program() -> None:
        here.set()
        go.wait(600)
        here.set()
        threading.Event().wait(0.2)

    thread = threading.Thread(target=program)
    thread.start()
    assert here.wait(600)
    assert thread.ident is not None
    position = Position(thread.ident)
    first = position.noted(ReplicaState(), "")
    for _ in range(3000):  # a machine that is busy takes its time to bring the thread to its wait
        again = position.noted(first, "REDUCE")
        assert again.beat == first.beat + 1
        if again.moves == first.moves:
            break
        first = again
        time.sleep(0.01)
    assert again.moves == first.moves
    assert again.waits == "REDUCE"
    # It waits in a library; the line of the program is the one that called it.
    assert again.place.startswith("test_states.py:")
    assert again.place.endswith(" in program")
    go.set()
    thread.join()
    # A thread that is no more is nowhere.
    assert position.noted(again, "").moves == again.moves + 1


@pytest.mark.parametrize(("text", "seconds"), [("", 60), ("2.5", 2.5), ("0", float("inf"))])
def test_the_timeout_is_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, text: str, seconds: float
) -> None:
    monkeypatch.setenv("CCL_TIMEOUT", text)
    assert hang_timeout() == seconds


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_a_timeout_that_is_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CCL_TIMEOUT", text)
    with pytest.raises(UsageError, match="CCL_TIMEOUT is "):
        hang_timeout()
