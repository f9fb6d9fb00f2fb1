"""How replicas meet in a store: those of one launch find each other, and that they are alike.

A launcher that restarts its processes may hand them the store of before, with all that the dead ones
left in it. So that nobody reads that, replica 0 names each meeting anew; the others answer to the
newest name, and it says who came.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from torch._C._distributed_c10d import PrefixStore, Store

from samba_onnx.errors import ReplicaError, UsageError

Facts = Mapping[str, Any]
"""What a replica says of itself, by name; anything that JSON can keep."""

_PAUSE: Final = 0.02
_LAST_READING: Final = 5.0
"""Seconds for which replica 0 keeps its store open for the others to read that they are refused."""


def meet(
    store: Store, rank: int, size: int, facts: Facts, *, alike: Sequence[str] = ()
) -> tuple[Store, list[dict[str, Any]]]:
    """Wait for all replicas, and return a place in the store that only they use.

    Args:
        store: All replicas reach it. What earlier meetings left there does no harm.
        rank: The number of this replica.
        size: How many it believes there are.
        facts: What it says of itself.
        alike: Names of those facts that must be the same on all replicas; the number of replicas
            must be, too.

    Returns:
        The place, and what each replica says of itself, by their numbers.

    Raises:
        UsageError: Replicas differ; the text says which ones, and in what.
        ReplicaError: Some did not come in the time that the store allows.
    """
    # Tells this start from earlier ones, whose words the store may still have.
    token = uuid.uuid4().hex
    own = {**facts, "token": token, "world size": size}
    patience: timedelta = store.timeout  # type: ignore[attr-defined]  # which torch does not declare
    ends = time.monotonic() + patience.total_seconds()
    if rank == 0:
        name, answer = token, _gather(store, token, size, own, ("world size", *alike), ends)
    else:
        name, answer = _attend(store, rank, own, ends)
    if answer["refusal"]:
        raise UsageError(f"replicas differ: {answer['refusal']}")
    for each in answer["facts"]:
        del each["token"]
    return PrefixStore(name, store), answer["facts"]


def differences(facts: Mapping[int, Facts], names: Sequence[str]) -> str:
    """Return in which facts replicas differ from replica 0, in words; empty if in none.

    Args:
        facts: What replicas say of themselves, by their numbers.
        names: The facts to look at.
    """
    return "; ".join(
        f"{name} is {_shown(each.get(name))} on rank {rank} and {_shown(facts[0].get(name))} on rank 0"
        for name in names
        for rank, each in facts.items()
        if each.get(name) != facts[0].get(name)
    )


def _shown(value: Any) -> str:
    return "missing" if value is None else str(value)


def _gather(
    store: Store, name: str, size: int, own: Facts, alike: Sequence[str], ends: float
) -> dict[str, Any]:
    """Name a meeting, wait for the others, and tell them who came."""
    store.set("current", name)
    came: dict[int, Facts] = {0: own}
    refusal = ""
    # One that differs is refused at once: who is missing may never come.
    while len(came) < size and not refusal:
        _note_who_came(store, name, size, came)
        refusal = differences(came, alike)
        _pause(ends, sorted(set(range(size)) - came.keys()))
    answer = _answer(store, name, size, came, refusal)
    if refusal:
        _let_them_read(store, name, size, came, refusal)
    return answer


def _note_who_came(store: Store, name: str, size: int, came: dict[int, Facts]) -> None:
    for rank in range(1, size):
        if rank not in came and store.check([f"{name}/{rank}"]):
            came[rank] = json.loads(store.get(f"{name}/{rank}"))


def _answer(
    store: Store, name: str, size: int, came: Mapping[int, Facts], refusal: str
) -> dict[str, Any]:
    """Tell those who came that they meet, or why they do not."""
    answer = {"refusal": refusal, "facts": [came.get(rank) for rank in range(size)]}
    store.set(f"{name}/answer", json.dumps(answer))
    return answer


def _let_them_read(
    store: Store, name: str, size: int, came: dict[int, Facts], refusal: str
) -> None:
    """Wait until everybody knows of a refusal, those as well who come after the one that it is about."""
    ends = time.monotonic() + _LAST_READING
    keys = [f"{name}/read/{rank}" for rank in range(1, size)]
    while keys and not store.check(keys) and time.monotonic() < ends:
        before = len(came)
        _note_who_came(store, name, size, came)
        # Who comes late must find itself in the answer, or it would wait on.
        if len(came) > before:
            _answer(store, name, size, came, refusal)
        time.sleep(_PAUSE)


def _attend(store: Store, rank: int, own: Facts, ends: float) -> tuple[str, dict[str, Any]]:
    """Answer to the newest meeting until one knows this replica."""
    answered = ""
    while True:
        # Without a check, get waits for the key as long as the store allows.
        name = store.get("current").decode() if store.check(["current"]) else ""
        if name and name != answered:
            store.set(f"{name}/{rank}", json.dumps(own))
            answered = name
        if answered and store.check([f"{answered}/answer"]):
            answer: dict[str, Any] = json.loads(store.get(f"{answered}/answer"))
            known = answer["facts"]
            mine = known[rank] if rank < len(known) else None
            # An answer of an earlier start may know this rank, but not its token.
            if mine is not None and mine["token"] == own["token"]:
                store.set(f"{answered}/read/{rank}", "")
                return answered, answer
        _pause(ends, [0])


def _pause(ends: float, missing: Sequence[int]) -> None:
    if time.monotonic() > ends:
        raise ReplicaError(
            f"rank {', '.join(map(str, missing))} did not come: were all processes launched?"
        )
    time.sleep(_PAUSE)
