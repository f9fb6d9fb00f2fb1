"""Datasets equal what the rules say, token for token, whatever the lines and flags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_onnx.data_prep import PackingConfig, PreparationOptions, UnitBoundary, data_prep
from samba_onnx.tools.data_prep import article_reading
from tests.tools.data_prep.reference import Rules, read_sequences
from tests.tools.data_prep.tokenizers_of_tests import ALL, CORPUS, END, llama_like

WORDS = sorted({word for line in CORPUS for word in line.split()})
WRITTEN = st.lists(
    st.sampled_from(
        [*WORDS, "", " ", "  ", "\n", "\t", "\u00a0", "\x1c", END, "<|begin|>", "'S", "99999"]
    ),
    max_size=8,
)
TEXTS = st.one_of(
    WRITTEN.map(" ".join),
    WRITTEN.map("".join),
    st.text(st.characters(codec="utf-8"), max_size=20),
)
PAIRS = st.fixed_dictionaries(
    {"completion": TEXTS},
    optional={"prompt": TEXTS, "category": st.sampled_from(["news", "code"])},
)
LINES = st.one_of(PAIRS, st.lists(PAIRS, max_size=4)).map(json.dumps)
FLAGS = st.fixed_dictionaries(
    {
        "max_seq_length": st.sampled_from([1, 2, 5, 16, 64]),
        "input_packing_config": st.sampled_from(PackingConfig.choices()),
        "packing_boundary": st.sampled_from([item.value for item in UnitBoundary]),
        "attention_boundary": st.sampled_from([item.value for item in UnitBoundary]),
        "disable_space_separator": st.booleans(),
        "keep_prompt_only_sequences": st.booleans(),
        "prompt_prefix": st.sampled_from(["", "Q: "]),
        "prompt_postfix": st.sampled_from(["", "\nA:"]),
        "categories": st.sampled_from([None, ["code", "news"]]),
    }
)


def options(flags: dict[str, Any]) -> PreparationOptions:
    categories = flags["categories"]
    return PreparationOptions(
        max_seq_length=flags["max_seq_length"],
        packing=PackingConfig.parse(flags["input_packing_config"]),
        packing_boundary=UnitBoundary(flags["packing_boundary"]),
        attention_boundary=UnitBoundary(flags["attention_boundary"]),
        space_separator=not flags["disable_space_separator"],
        keep_prompt_only_sequences=flags["keep_prompt_only_sequences"],
        prompt_prefix=flags["prompt_prefix"],
        prompt_postfix=flags["prompt_postfix"],
        categories=None if categories is None else tuple(categories),
    )


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines arrive a few at a time, so that articles are cut between batches."""
    monkeypatch.setattr(article_reading, "BATCH_BYTES", 64)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.usefixtures("small_batches")
def test_lines_of_json(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp(kind)
    tokenizer = ALL[kind]()

    @settings(max_examples=40, deadline=None)
    @given(st.lists(LINES, min_size=1, max_size=8), FLAGS)
    def compare(lines: list[str], flags: dict[str, Any]) -> None:
        source = folder / "lines.jsonl"
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        result = data_prep(source, None, tokenizer, options(flags), overwrite_output_path=True)
        expected = Rules(tokenizer, **flags).file(lines)
        assert read_sequences(folder / "lines.hdf5") == expected
        kinds = [token[1] for sequence in expected for token in sequence]
        metrics = result.metrics
        assert (metrics.sequences, metrics.articles) == (len(expected), len(lines))
        assert metrics.prompt_tokens == kinds.count(0)
        assert metrics.completion_tokens == kinds.count(1) + kinds.count(3)
        assert (metrics.padding_tokens, metrics.separator_tokens) == (
            kinds.count(2),
            kinds.count(3),
        )

    compare()


@pytest.mark.parametrize("separates", [False, True])
@pytest.mark.parametrize("kind", ALL)
def test_spaces_are_taken_only_from_between_a_prompt_and_its_completion(
    kind: str, separates: bool, tmp_path: Path
) -> None:
    spaces = ["", " ", "   ", "\t", " \n "]
    lines = [
        json.dumps({"prompt": f"{one}the{other}", "completion": f"{other}fox{one}"})
        for one in spaces
        for other in spaces
    ]
    source, flags = tmp_path / "lines.jsonl", {"disable_space_separator": not separates}
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    tokenizer = ALL[kind]()
    data_prep(source, None, tokenizer, PreparationOptions(8, space_separator=separates))
    assert read_sequences(tmp_path / "lines.hdf5") == Rules(tokenizer, **flags).file(lines)


@pytest.mark.usefixtures("small_batches")
def test_lines_of_text(tmp_path: Path) -> None:
    tokenizer = llama_like()

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=30)),
        st.booleans(),
        FLAGS,
    )
    def compare(lines: list[str], ends: bool, flags: dict[str, Any]) -> None:
        content = "\n".join([*lines, "the last line"]) + "\n" * ends
        source = tmp_path / "lines.txt"
        source.write_bytes(content.encode())
        data_prep(source, None, tokenizer, options(flags), overwrite_output_path=True)
        with open(source, encoding="utf-8") as file:
            expected = Rules(tokenizer, **flags).file(list(file), is_json=False)
        assert read_sequences(tmp_path / "lines.hdf5") == expected

    compare()
