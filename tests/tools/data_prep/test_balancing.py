"""Files end within one sequence of each other, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_onnx.tools.data_prep import balancing
from samba_onnx.tools.data_prep.balancing import balance
from samba_onnx.tools.data_prep.hdf5_files import new_sequence_file


def expected(files: list[list[int]]) -> list[list[int]]:
    """The rules in their own words: walk through the files, collect what is too much, hand it out."""
    average, remainder = divmod(sum(map(len, files)), len(files))
    left: list[int] = []
    needs = []
    for file in files:
        target = average
        if remainder > 0:
            remainder -= 1
            target += 1
        while len(file) > target and file[target:]:
            left += file[target:]
            del file[target:]
        needs.append(target - len(file))
    for file, need in zip(files, needs, strict=True):
        file += left[:need]
        del left[:need]
    assert not left
    return files


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.booleans())
def test_sequences_move_as_the_rules_say(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], categories: bool
) -> None:
    folder = tmp_path_factory.mktemp("files")
    planes = 3 if categories else 2
    files, paths, number = [], [], 0
    for place, count in enumerate(counts):
        rows = list(range(number, number + count))
        number += count
        paths.append(folder / f"{place}.hdf5")
        values = np.array(rows, np.int32)[None, :, None] + np.zeros((planes, 1, 3), np.int32)
        values[1:] %= 4
        with new_sequence_file(paths[-1], 3, planes) as file:
            file.append(values)
        files.append(rows)
    patch = pytest.MonkeyPatch()
    patch.setattr(balancing, "BLOCK_BYTES", 24)  # two sequences at a time
    with patch.context():
        result = balance(paths)
    patch.undo()
    wanted = expected(files)
    assert result == [len(rows) for rows in wanted]
    for path, rows in zip(paths, wanted, strict=True):
        with h5py.File(path) as file:
            assert file["input_ids"][:, 0].tolist() == rows
            assert file["token_type_ids"][:, 2].tolist() == [row % 4 for row in rows]
            assert ("category_ids" in file) == categories


def test_no_files_are_balanced() -> None:
    assert balance([]) == []


def test_files_are_what_training_expects(tmp_path: Path) -> None:
    with new_sequence_file(tmp_path / "a.hdf5", 5, 3) as file:
        for number in range(7):
            file.append(np.full((3, number, 5), number, np.int32))
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert list(file) == ["category_ids", "input_ids", "token_type_ids"]
        for dataset in file.values():
            assert (dataset.dtype, dataset.compression) == (np.int32, "gzip")
            assert (dataset.shape, dataset.maxshape) == ((21, 5), (None, 5))
            assert dataset[:, 0].tolist() == [n for n in range(7) for _ in range(n)]
