"""Every operator that torch tests itself with gives torch's values and gradients on SambaTensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.functional import operator_database

SHARDS = 8
FAST_SAMPLES = 1

Record = Callable[[str, object], None]


def _check(shard: int, shards: int, samples: int | None, record: Record) -> None:
    tally = operator_database.run(shard, shards, samples)
    record("op_db", {"operators": len(tally.operators), **tally.counts})
    assert tally.operators
    assert tally.counts["function: values"] > len(tally.operators)
    assert not tally.failures, "\n".join(tally.failures)


def test_the_first_sample_of_some_operators(record_property: Record) -> None:
    """One operator in 120: all of them take minutes."""
    _check(0, 120, FAST_SAMPLES, record_property)


@pytest.mark.exhaustive
@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_first_sample_of_every_operator(shard: int, record_property: Record) -> None:
    _check(shard, SHARDS, FAST_SAMPLES, record_property)


@pytest.mark.exhaustive
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_sample_of_every_operator(shard: int, record_property: Record) -> None:
    _check(shard, SHARDS, None, record_property)
