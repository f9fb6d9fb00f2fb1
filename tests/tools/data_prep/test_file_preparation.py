"""A file of text becomes an HDF5 file: its datasets, what is counted, and the lines that are kept aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import pytest

from samba_onnx.data_prep import PreparationOptions
from samba_onnx.tools.data_prep import article_reading, file_preparation
from samba_onnx.tools.data_prep.file_preparation import FileResult, FileTask, prepare_file
from samba_onnx.tools.data_prep.hdf5_files import sha256_of
from samba_onnx.tools.data_prep.tokenizer_record import describe_tokenizer
from tests.tools.data_prep.building import write
from tests.tools.data_prep.reference import Rules, read_sequences
from tests.tools.data_prep.tokenizers_of_tests import word_like

PAIRS = [
    {"prompt": "the fox", "completion": "jumps", "category": "code"},
    {"prompt": "the quick fox", "completion": ""},
    {"completion": "forty two", "category": "news"},
]


def prepared(folder: Path, lines: list[Any], **options: Any) -> tuple[FileResult, list[Any]]:
    """Prepare lines a few bytes at a time; return the result, and what was told of progress."""
    source = write(
        folder / "a.jsonl", [one if isinstance(one, str) else json.dumps(one) for one in lines]
    )
    task = FileTask(source, folder / "a.hdf5", folder / "skipped" / "a.log")
    chosen = PreparationOptions(max_seq_length=4, **options)
    told: list[Any] = []
    record = describe_tokenizer(word_like(), None, "")
    result = prepare_file(task, chosen, record, lambda *counts: told.append(counts))
    assert result.sha256 == sha256_of(task.target)
    return result, told


@pytest.mark.parametrize("categories", [None, ("news", "code")])
@pytest.mark.parametrize("keep", [False, True])
def test_a_file_has_the_datasets_and_sequences_that_were_asked_for(
    categories: tuple[str, ...] | None, keep: bool, tmp_path: Path
) -> None:
    options = {"categories": categories, "keep_prompt_only_sequences": keep}
    result, _ = prepared(tmp_path, PAIRS, **options)
    rules = Rules(
        word_like(), 4, keep_prompt_only_sequences=keep, categories=categories and list(categories)
    )
    assert read_sequences(tmp_path / "a.hdf5") == rules.file([json.dumps(pair) for pair in PAIRS])
    names = {"input_ids", "token_type_ids"} | ({"category_ids"} if categories else set())
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert set(file) == names
    assert (result.metrics.articles, result.metrics.lines_skipped) == (3, 0)
    # Three words, four words where the second prompt stays, two words; and an end each.
    assert result.metrics.input_tokens == 4 + 4 * keep + 3


def test_sequences_of_nothing_but_prompts_stay_if_they_are_kept(tmp_path: Path) -> None:
    line = {"prompt": "the quick fox jumps", "completion": ""}
    result, _ = prepared(tmp_path, [line], keep_prompt_only_sequences=True)
    assert result.metrics.sequences == 2
    line["completion"] = "over the lazy"
    result, _ = prepared(tmp_path, [line])
    assert (result.metrics.sequences, result.metrics.tokens_dropped_from_all_prompt) == (1, 4)


def test_progress_is_told_after_every_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(article_reading, "BATCH_BYTES", 1)
    _, told = prepared(tmp_path, PAIRS)
    assert told == [(len(json.dumps(pair)) + 1, 1) for pair in PAIRS]


def test_the_first_reasons_are_kept_and_every_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_preparation, "MOST_REASONS", 2)
    bad = ["oops", "5", "[[]]"]
    lines = [PAIRS[0], bad[0], PAIRS[1], bad[1], bad[2]]
    result, told = prepared(tmp_path, lines, ignore_input_format_error=True)
    assert [number for number, _ in result.skipped] == [2, 4]
    assert result.skipped[1][1] == "expected a JSON object, but this is a number"
    assert (result.metrics.lines_skipped, result.metrics.articles, told[0][1]) == (3, 2, 5)
    assert (tmp_path / "skipped" / "a.log").read_text().splitlines() == bad
