"""Sequences back as text: which of a file, where their stretches end, and what is no sequence of a tokenizer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from samba_onnx.errors import DataError, UsageError
from samba_onnx.tools.data_prep.decoding import Stretch, decode
from samba_onnx.tools.data_prep.hdf5_files import new_sequence_file
from tests.tools.data_prep.tokenizers_of_tests import word_like


def written(path: Path, *sequences: tuple[list[int], list[int]]) -> Path:
    with new_sequence_file(path, 4, 2) as file:
        for sequence in sequences:
            file.append(np.array(sequence, np.int32)[:, None])
    return path


def numbers(path: Path, first: int, count: int | None) -> list[int]:
    return [sequence.number for sequence in decode(path, word_like(), first, count)]


def test_as_many_as_asked_for_from_the_first_one_on(tmp_path: Path) -> None:
    path = written(tmp_path / "four.hdf5", *[([3] * 4, [1] * 4)] * 4)
    assert numbers(path, 1, None) == [1, 2, 3, 4]
    assert numbers(path, 2, 2) == [2, 3]
    assert numbers(path, 4, 1) == [4]
    assert numbers(path, 3, 9) == [3, 4]
    for first in (0, 5):
        with pytest.raises(UsageError, match=f"^sequence {first}: .* has sequences 1 to 4$"):
            numbers(path, first, None)


def test_a_file_without_sequences_is_shown_empty(tmp_path: Path) -> None:
    path = written(tmp_path / "none.hdf5")
    assert numbers(path, 1, None) == []
    with pytest.raises(UsageError, match="sequence 2"):
        numbers(path, 2, None)


def test_a_stretch_ends_where_the_type_changes(tmp_path: Path) -> None:
    tokenizer = word_like()
    fox, jumps, end, pad = tokenizer.convert_tokens_to_ids(["fox", "jumps", "<|end|>", "<|pad|>"])
    kinds = [[0, 1, 3, 2], [0, 0, 0, 3], [2, 2, 2, 2]]
    ids = [[fox, jumps, end, pad], [fox, jumps, fox, end], [pad] * 4]
    path = written(tmp_path / "three.hdf5", *zip(ids, kinds, strict=True))
    assert [sequence.stretches for sequence in decode(path, tokenizer, 1, None)] == [
        (
            Stretch("prompt", 1, "fox"),
            Stretch("completion", 1, "jumps"),
            Stretch("separator", 1, "<|end|>"),
            Stretch("padding", 1, ""),
        ),
        (Stretch("prompt", 3, "fox jumps fox"), Stretch("separator", 1, "<|end|>")),
        (Stretch("padding", 4, ""),),
    ]


@pytest.mark.parametrize("kind", [-1, 4])
def test_other_types_are_refused(kind: int, tmp_path: Path) -> None:
    path = written(tmp_path / "two.hdf5", ([3] * 4, [0, 1, 2, 3]), ([3] * 4, [1, 1, kind, 1]))
    assert numbers(path, 1, 1) == [1]
    with pytest.raises(DataError, match="sequence 2 has types of tokens other than 0 to 3"):
        numbers(path, 2, 1)


def test_ids_that_the_tokenizer_does_not_have_are_refused(tmp_path: Path) -> None:
    most = len(word_like())
    good, kinds = [0, most - 1, 0, 0], [1] * 4
    path = written(tmp_path / "three.hdf5", (good, kinds), ([most, 0, 0, 0], kinds), ([0, 0, -1, 0], kinds))  # fmt: skip
    assert numbers(path, 1, 1) == [1]
    for number in (2, 3):
        with pytest.raises(DataError, match=f"sequence {number} has ids beyond the {most} tokens"):
            numbers(path, number, 1)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.hdf5: there is no such file") as caught:
        numbers(tmp_path / "gone.hdf5", 1, None)
    assert caught.value.path == str(tmp_path / "gone.hdf5")
