"""Replicas that meet in a store, one thread each."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore

from samba_onnx.errors import ReplicaError, UsageError
from samba_onnx.replicas.meeting import differences, meet


def store_for(seconds: float) -> HashStore:
    store = HashStore()
    store.set_timeout(timedelta(seconds=seconds))
    return store


def meet_all(store: HashStore, facts: list[dict[str, Any]], sizes: list[int]) -> list[Future[Any]]:
    """Let replicas meet, the first one last; return what each of them got."""
    with ThreadPoolExecutor(len(facts)) as pool:
        futures = [
            pool.submit(meet, store, rank, sizes[rank], facts[rank], alike=("torch",))
            for rank in reversed(range(len(facts)))
        ]
    return futures[::-1]


def test_a_meeting_knows_those_who_came_and_nobody_of_before() -> None:
    store = store_for(60)
    for attempt in range(3):
        facts = [{"torch": "2", "pid": 10 * attempt + rank} for rank in range(3)]
        met = [future.result() for future in meet_all(store, facts, [3, 3, 3])]
        for place, known in met:
            assert [each["pid"] for each in known] == [10 * attempt + rank for rank in range(3)]
            # What one leaves there only this attempt sees.
            assert not place.check(["mine"])
        met[0][0].set("mine", "")
        assert met[2][0].check(["mine"])


@pytest.mark.parametrize(
    ("facts", "sizes", "text"),
    [
        (["2.1", "2.1", "2.2"], [3, 3, 3], "torch is 2.2 on rank 2 and 2.1 on rank 0"),
        (["2.1", "2.1"], [2, 3], "world size is 3 on rank 1 and 2 on rank 0"),
        ([None, "2.1"], [2, 2], "torch is 2.1 on rank 1 and missing on rank 0"),
    ],
)
def test_replicas_that_differ_are_refused_on_all_of_them(
    facts: list[str | None], sizes: list[int], text: str
) -> None:
    for future in meet_all(store_for(60), [{"torch": one} for one in facts], sizes):
        error = future.exception()
        assert isinstance(error, UsageError)
        assert str(error) == f"replicas differ: {text}"


def test_who_comes_after_a_refusal_is_refused_too() -> None:
    store = store_for(60)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(meet, store, 0, 3, {"torch": "2.1"}, alike=("torch",))
        other = pool.submit(meet, store, 2, 3, {"torch": "2.2"}, alike=("torch",))
        with pytest.raises(UsageError, match=r"torch is 2\.2 on rank 2"):
            other.result()
        late = pool.submit(meet, store, 1, 3, {"torch": "2.1"}, alike=("torch",))
    for future in (first, late):
        assert isinstance(future.exception(), UsageError)


def test_who_does_not_come_is_named() -> None:
    store = store_for(0.2)
    with pytest.raises(ReplicaError, match="rank 1, 2 did not come"):
        meet(store, 0, 3, {})
    # It finds a meeting at which it was not expected.
    with pytest.raises(ReplicaError, match="rank 0 did not come"):
        meet(store, 1, 3, {})


def test_all_differences_are_said() -> None:
    facts = {0: {"a": 1, "b": 2}, 1: {"a": 1, "b": 2}, 2: {"a": 3, "b": 4}}
    expected = "a is 3 on rank 2 and 1 on rank 0; b is 4 on rank 2 and 2 on rank 0"
    assert differences(facts, ("a", "b")) == expected
    assert not differences(facts, ())
