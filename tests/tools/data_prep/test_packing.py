"""Articles in sequences: written out for each way of packing, and the same however they arrive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_onnx.data_prep import PackingConfig
from samba_onnx.errors import UsageError
from samba_onnx.tools.data_prep.metrics import Metrics
from samba_onnx.tools.data_prep.packing import Packed, Packer
from samba_onnx.tools.data_prep.token_types import NO_CATEGORY, Articles, TokenType

PAD = 99


def articles(*groups: list[int]) -> Articles:
    """Articles of completions, whose ids are given."""
    ids = [number for group in groups for number in group]
    planes = np.array([ids, [1] * len(ids)], np.int32).reshape(2, -1)
    return Articles(planes, np.array([len(group) for group in groups], np.int64))


def packed(packer: Packer, *parts: Articles) -> list[list[int]]:
    results = [packer.pack(part) for part in parts] + [packer.finish()]
    return np.concatenate([result.planes for result in results], axis=1)[0].tolist()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("full", [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, PAD, PAD]]),
        ("greedy::drop", [[1, 2, PAD], [3, PAD, PAD], [8, 9, 10]]),
        ("greedy::truncate_left", [[1, 2, PAD], [3, PAD, PAD], [5, 6, 7], [8, 9, 10]]),
        ("greedy::truncate_right", [[1, 2, PAD], [3, PAD, PAD], [4, 5, 6], [8, 9, 10]]),
        ("single::drop", [[1, 2, PAD], [3, PAD, PAD], [8, 9, PAD], [10, PAD, PAD]]),
        (
            "single::truncate_left",
            [[1, 2, PAD], [3, PAD, PAD], [5, 6, 7], [8, 9, PAD], [10, PAD, PAD]],
        ),
        (
            "single::truncate_right",
            [[1, 2, PAD], [3, PAD, PAD], [4, 5, 6], [8, 9, PAD], [10, PAD, PAD]],
        ),
    ],
)
def test_every_packing(config: str, expected: list[list[int]]) -> None:
    groups = ([1, 2], [3], [4, 5, 6, 7], [8, 9], [10])
    if config.startswith("greedy"):
        groups = ([1, 2], [3, 3], [4, 5, 6, 7], [8, 9], [10])
        expected = [[3, 3, PAD] if row[0] == 3 else row for row in expected]
    packer = Packer(PackingConfig.parse(config), 3, PAD)
    assert packed(packer, articles(*groups)) == expected


def test_a_dropped_article_ends_the_sequence_before_it() -> None:
    """As in the documented tool: what follows does not go back into what was open."""
    packer = Packer(PackingConfig.parse("greedy::drop"), 3, PAD)
    assert packed(packer, articles([1], [2, 2, 2, 2], [3])) == [[1, PAD, PAD], [3, PAD, PAD]]
    # And a sequence with nothing but dropped ones never was one.
    keeper = Packer(PackingConfig.parse("greedy::drop"), 3, PAD, keep_prompt_only=True)
    assert packed(keeper, articles([2] * 4, [2] * 4, [3])) == [[3, PAD, PAD]]


def test_articles_share_a_sequence_whenever_they_arrive() -> None:
    packer = Packer(PackingConfig.parse("greedy::drop"), 4, PAD)
    parts = articles([1], [2, 2]), articles([3], [4, 4, 4]), articles([5])
    assert packed(packer, *parts) == [[1, 2, 2, 3], [4, 4, 4, 5]]
    packer = Packer(PackingConfig.parse("greedy::drop"), 4, PAD)
    whole = articles([1], [2, 2], [4, 4, 4], [5], [6])
    assert packed(packer, whole) == [[1, 2, 2, PAD], [4, 4, 4, 5], [6, PAD, PAD, PAD]]


GROUPS = st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=12)


@settings(max_examples=100, deadline=None)
@given(GROUPS, st.sampled_from(PackingConfig.choices()), st.integers(1, 6), st.data())
def test_sequences_do_not_depend_on_how_articles_arrive(
    groups: list[list[int]], config: str, length: int, data: st.DataObject
) -> None:
    packing = PackingConfig.parse(config)
    cut = data.draw(st.integers(0, len(groups)))
    whole = packed(Packer(packing, length, PAD), articles(*groups))
    parts = articles(*groups[:cut]), articles(), articles(*groups[cut:])
    assert packed(Packer(packing, length, PAD), *parts) == whole


def test_what_becomes_of_tokens_is_counted() -> None:
    def total(config: str) -> Packed:
        packer = Packer(PackingConfig.parse(config), 3, PAD)
        first, last = packer.pack(articles([1, 2], [3, 4, 5, 6, 7], [8])), packer.finish()
        return Packed(first.planes, first.metrics + last.metrics)

    dropped = total("greedy::drop").metrics
    assert (dropped.articles_dropped, dropped.articles_truncated) == (1, 0)
    assert (dropped.tokens_dropped_from_packing, dropped.padding_tokens) == (5, 3)
    cut = total("single::truncate_left").metrics
    assert (cut.articles_dropped, cut.articles_truncated) == (0, 1)
    assert (cut.tokens_dropped_from_packing, cut.output_tokens) == (2, 9)


def test_sequences_of_prompts_alone_are_left_out() -> None:
    planes = np.array([[1, 2, 3, 4], [0, 0, 0, 3]], np.int32)
    given_articles = Articles(planes, np.array([4], np.int64))
    packer = Packer(PackingConfig(), 2, PAD)
    first = packer.pack(given_articles)
    assert first.planes.shape == (2, 0, 2)  # a separator alone is no completion
    assert first.metrics.tokens_dropped_from_all_prompt == 4
    keeper = Packer(PackingConfig(), 2, PAD, keep_prompt_only=True)
    assert keeper.pack(given_articles).planes[0].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("text", ["greedy", "full::drop", "single::cut", "", "Full"])
def test_other_packings_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected one of full, greedy::drop"):
        PackingConfig.parse(text)


@pytest.mark.parametrize("config", PackingConfig.choices())
def test_nothing_is_left_of_what_was_finished(config: str) -> None:
    """Categories are a plane of their own, and what pads is of none."""
    packer = Packer(
        PackingConfig.parse(config), 3, PAD, categories=True, keep_prompt_only=True
    )  # fmt: skip
    planes = np.array([[5, 6], [0, 1], [7, 8]], np.int32)
    first = packer.pack(Articles(planes, np.array([2]))).planes
    last = packer.finish().planes
    whole = np.concatenate([first, last], axis=1)
    assert whole.dtype == np.int32
    assert whole[:, 0].tolist() == [
        [5, 6, PAD],
        [0, 1, TokenType.PADDING],
        [7, 8, NO_CATEGORY],
    ]
    assert whole.shape[1] == 1
    again = packer.finish()
    assert again.planes.shape == (3, 0, 3)
    assert again.metrics == Metrics()


def test_every_token_is_counted_as_what_it_is() -> None:
    """An article that is just as long as a sequence is none that is too long."""
    types = [TokenType.PROMPT] * 2 + [TokenType.COMPLETION] * 3 + [TokenType.SEPARATOR]
    planes = np.array([range(6), types], np.int32)
    packer = Packer(PackingConfig.parse("single::truncate_right"), 6, PAD)
    parts = Articles(np.tile(planes, 2)[:, :11], np.array([6, 5]))
    assert packer.pack(parts).metrics == Metrics(
        sequences=2, prompt_tokens=4, completion_tokens=7, separator_tokens=1, padding_tokens=1
    )
