"""Delta debugging: what is left fails, and no item of it can be left out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samba_onnx.workflows.reduction import smallest_failing


@given(st.integers(1, 60), st.data())
def test_what_is_left_fails_and_nothing_of_it_can_go(count: int, data: st.DataObject) -> None:
    guilty = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=5))
    left = smallest_failing(range(count), lambda items: guilty <= set(items))
    assert set(left) == guilty
    assert list(left) == sorted(left)


@given(st.integers(2, 24), st.randoms(use_true_random=False))
def test_a_fault_of_any_shape_is_reduced_until_no_item_can_go(count: int, random: object) -> None:
    # Subsets fail or not by chance, as parts do that a pass cannot be run on; the whole fails.
    answers: dict[tuple[int, ...], bool] = {tuple(range(count)): True}

    def fails(items: Sequence[int]) -> bool:
        key = tuple(items)
        return answers.setdefault(key, random.random() < 0.3)  # type: ignore[attr-defined]

    left = smallest_failing(range(count), fails)
    assert fails(left)
    if len(left) > 1:
        assert not any(fails(rest) for rest in itertools.combinations(left, len(left) - 1))


@pytest.mark.parametrize("guilty", [0, 511, 1023])
def test_one_of_a_thousand_is_found_in_few_trials(guilty: int) -> None:
    trials: list[int] = []

    def fails(items: Sequence[int]) -> bool:
        trials.append(len(items))
        return guilty in items

    assert list(smallest_failing(range(1024), fails)) == [guilty]
    assert len(trials) <= 2 * 10  # two halves in each of ten rounds
