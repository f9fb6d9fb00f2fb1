"""The ledger adds up, knows its runs, and gives documented JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies

from samba_onnx.errors import UsageError
from samba_onnx.pef.manifest import Cause, Direction, Transfer
from samba_onnx.runtime.ledger import Ledger, Total, totals

TO, FROM = Direction.HOST_TO_RDU, Direction.RDU_TO_HOST
WEIGHT = Transfer("w", 100, TO, Cause.WEIGHT, 1.0, None)
READ = Transfer("y", 7, FROM, Cause.EXPLICIT, 0.125, None)
IN = Transfer("x", 10, TO, Cause.INPUT, 0.5, 0)
OUT = Transfer("y", 7, FROM, Cause.OUTPUT, 0.25, 2)


def filled() -> Ledger:
    ledger = Ledger()
    ledger.enter(WEIGHT)
    for read in (True, False):
        ledger.begin_run()
        ledger.enter(IN)
        ledger.enter(OUT)
        if read:
            ledger.enter(READ)
    return ledger


def test_runs_exclude_what_is_made_between_them() -> None:
    ledger = filled()
    assert ledger.transfers == (WEIGHT, IN, OUT, READ, IN, OUT)
    assert ledger.runs == 2
    assert ledger.run() == ledger.run(0) == ledger.run(1) == ledger.run(-2) == (IN, OUT)
    for index in (2, -3):
        with pytest.raises(UsageError, match="has 2"):
            ledger.run(index)


def test_totals_by_cause_and_direction() -> None:
    assert filled().totals() == (
        Total(Cause.INPUT, TO, 2, 20, 1.0),
        Total(Cause.OUTPUT, FROM, 2, 14, 0.5),
        Total(Cause.WEIGHT, TO, 1, 100, 1.0),
        Total(Cause.EXPLICIT, FROM, 1, 7, 0.125),
    )


def test_json_and_reset() -> None:
    ledger = filled()
    data = json.loads(json.dumps(ledger.to_json()))
    assert (data["version"], data["runs"]) == (1, 2)
    assert data["transfers"][1] == {
        "symbol": "x",
        "bytes": 10,
        "direction": "host_to_rdu",
        "cause": "input",
        "seconds": 0.5,
        "call": 0,
    }
    assert data["totals"][2] == {
        "cause": "weight",
        "direction": "host_to_rdu",
        "count": 1,
        "bytes": 100,
        "seconds": 1.0,
    }
    ledger.reset()
    assert (ledger.transfers, ledger.runs, ledger.totals()) == ((), 0, ())
    with pytest.raises(UsageError):
        ledger.run()


def test_equal_runs_are_shared() -> None:
    ledger = Ledger()
    ledger.enter(WEIGHT)
    for _ in range(3):
        ledger.begin_run()
        ledger.enter(IN)
        ledger.enter(OUT)
    assert ledger.transfers == (WEIGHT, *(IN, OUT) * 3)
    assert ledger.run(0) is ledger.run(2)
    assert ledger.totals()[0].count == 3
    ledger.enter_run(ledger.run())
    ledger.enter(READ)
    assert ledger.transfers[-1] == READ
    assert (ledger.runs, ledger.totals()) == (4, totals(ledger.transfers))
    ledger.begin_run()
    assert (ledger.runs, ledger.run()) == (5, ())


def test_nothing_of_before_a_reset_is_left() -> None:
    ledger = filled()
    assert ledger.totals()
    ledger.begin_run()
    ledger.enter(IN)
    ledger.reset()
    ledger.enter(OUT)
    assert ledger.transfers == (OUT,)
    assert ledger.runs == 0
    assert ledger.totals() == (Total(Cause.OUTPUT, FROM, 1, 7, 0.25),)


def test_a_run_that_is_entered_whole_comes_after_the_one_that_was_begun() -> None:
    ledger = Ledger()
    ledger.begin_run()
    ledger.enter(IN)
    ledger.enter_run((OUT,))
    assert ledger.transfers == (IN, OUT)
    assert (ledger.run(0), ledger.run(1)) == ((IN,), (OUT,))


@settings(deadline=None)
@given(
    strategies.lists(
        strategies.sampled_from(("a", "b", "read", "look")), min_size=1, max_size=12
    ).map(lambda parts: parts * 2)
)
def test_runs_that_are_counted_together_are_those_that_were_made(parts: list[str]) -> None:
    ledger, records, runs = Ledger(), [], []
    for part in parts:
        if part == "read":
            ledger.enter(READ)
            records.append(READ)
        elif part == "look":
            assert ledger.totals() == totals(records)
        else:
            # Equal records in a tuple of their own, as a run that took the long way has them.
            copies = tuple([IN, OUT][: 2 if part == "a" else 1])
            ledger.enter_run(copies)
            records += copies
            runs.append(copies)
    assert ledger.transfers == tuple(records)
    assert ledger.runs == len(runs)
    assert ledger.totals() == totals(records)
    for index in range(len(runs)):
        assert ledger.run(index) == ledger.run(index - len(runs)) == runs[index]


def test_a_loop_of_equal_runs_takes_no_memory() -> None:
    ledger = Ledger()
    for _ in range(10_000):
        ledger.enter_run((IN, OUT))
    assert ledger.runs == 10_000
    assert len(ledger._entries) == 1
