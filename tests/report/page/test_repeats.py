"""Equal layers are found where they are, and nothing else is taken for one."""

from __future__ import annotations

import random

import pytest

from samba_onnx.report.page.repeats import find_repeats


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("xabcabcabcyy", [(1, 3, 3)]),
        ("abcabd", []),
        ("abab", []),  # shorter than what is looked for
        ("ppqrpqrpqrp", [(1, 3, 3)]),
        ("aabaabaab", [(0, 3, 3)]),
        ("abcabcxdefdefdef", [(0, 3, 2), (7, 3, 3)]),
        ("", []),
    ],
)
def test_repeats(text: str, expected: list[tuple[int, int, int]]) -> None:
    assert find_repeats(text) == expected


def test_repeats_are_what_they_say() -> None:
    """Of random sequences: each stretch is as often there as is said, and none meets another."""
    chosen = random.Random(0)
    found = 0
    for _ in range(300):
        layer = "".join(chosen.choices("abcd", k=chosen.randint(3, 9)))
        text = "".join(chosen.choices("abcd", k=7)) + layer * chosen.randint(2, 6) + "dcba"
        last = 0
        for start, period, count in find_repeats(text):
            assert last <= start
            assert text[start : start + period * count] == text[start : start + period] * count
            last = start + period * count
            found += 1
    # Some begin with a shorter stretch by chance.
    assert found > 200


def test_layers_of_one_operator_are_no_layers_of_many() -> None:
    assert find_repeats("aaaa", 1) == [(0, 1, 4)]
    assert find_repeats("aa", 1) == []


def test_a_sequence_that_nearly_repeats_is_given_up() -> None:
    """Without a bound it would take minutes: a stretch of thousands that ends otherwise each time."""
    stretch = [number % 251 * (number % 7) for number in range(3_900)]
    nearly = [token for end in range(12) for token in (*stretch, -1 - end)]
    assert all(period < 3_900 for _, period, _ in find_repeats(nearly))
