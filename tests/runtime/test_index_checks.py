"""The check of integers that a run is given, against a plain loop over all of them."""

from __future__ import annotations

import numpy as np
import pytest

from samba_onnx.errors import InputError
from samba_onnx.program.index_demands import IndexDemand
from samba_onnx.runtime.index_checks import IndexCheck

DEMANDS = (
    IndexDemand("ids", "embedding", 0, 9),
    IndexDemand("ids", "take", -10, 9),
    IndexDemand("ids", "cross_entropy", 0, 4, (-100,)),
    IndexDemand("ids", "cross_entropy", 0, 4, (-100, 7)),
    IndexDemand("ids", "embedding", 0, 9, part=((0, 2), (1, 3))),
    IndexDemand("ids", "embedding", 0, 300),
)
TYPES = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)


def _wrong(demand: IndexDemand, array: np.ndarray) -> list[int]:
    taken = array
    if demand.part:
        (top, bottom), (left, right) = demand.part
        taken = array[top:bottom, left:right]
    numbers = [int(number) for row in taken for number in row]
    legal = {*range(demand.lowest, demand.highest + 1), *demand.exempt}
    return [number for number in numbers if number not in legal]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("demand", DEMANDS)
def test_it_refuses_what_is_out_of_range_and_names_the_first(
    demand: IndexDemand, dtype: type
) -> None:
    check, generator = IndexCheck(demand), np.random.default_rng(0)
    edges = np.array([-101, -100, -11, -10, -1, 0, 4, 5, 7, 9, 10, 120, 300, 301])
    limits = np.iinfo(dtype)
    edges = edges[(edges >= limits.min) & (edges <= limits.max)]
    outcomes = set()
    for _ in range(100):
        count = generator.integers(1, 4)
        array = generator.choice(generator.choice(edges, count), (2, 3)).astype(dtype)
        wrong = _wrong(demand, array)
        outcomes.add(bool(wrong))
        if not wrong:
            check.check(array)
            continue
        with pytest.raises(InputError, match=f"input 'ids' holds {wrong[0]}[, ]") as caught:
            check.check(array)
        assert (f"and {len(wrong) - 1} more such" in str(caught.value)) is (len(wrong) > 1)
    assert False in outcomes
    assert True in outcomes or demand.highest >= limits.max


def test_nothing_is_checked_of_nothing() -> None:
    for demand in DEMANDS:
        IndexCheck(demand).check(np.zeros((0, 3), np.int64))


def test_the_message_says_what_to_give() -> None:
    with pytest.raises(InputError) as caught:
        IndexCheck(DEMANDS[3]).check(np.array([[5]]))
    assert str(caught.value) == (
        "input 'ids' holds 5, which cross_entropy does not take, here or in torch: give numbers from 0 "
        "to 4, or -100, or 7"
    )
