"""The line of a split file is found in the input, to the last character of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from samba_onnx.errors import DataError
from samba_onnx.tools.data_prep.locating import located

LINES = ["first", "", "oops", "oops ", "oopsX", "\toops", "oops\u2028oops", "last"]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """The lines, some of them in a second file, whose lines end in another way."""
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_bytes("".join(f"{line}\n" for line in LINES[:4]).encode())
    two.write_bytes("\r\n".join(LINES[4:]).encode())
    return [one, two]


@pytest.mark.parametrize("place", range(len(LINES)))
def test_a_line_is_found_by_all_that_it_says(place: int, files: list[Path], tmp_path: Path) -> None:
    split = tmp_path / "split.jsonl"
    split.write_bytes(f"before\n{LINES[place]}\nbehind\n".encode())
    error = located(DataError(f"{split}:2: bad: so bad", path=split, line=2), files)
    path, number = files[place // 4], place % 4 + 1
    assert str(error) == f"{path}:{number}: bad: so bad"
    assert (error.path, error.line) == (str(path), number)


@pytest.mark.parametrize("line", [None, 2, 3])
def test_other_errors_stay_as_they_are(line: int | None, files: list[Path], tmp_path: Path) -> None:
    split = tmp_path / "split.jsonl"
    split.write_bytes(b"first\nnowhere\n")
    error = DataError(f"{split}: bad", path=split, line=line)
    files[0].write_bytes(b"first\n")
    assert located(error, files) is error
    error = DataError("bad", line=line)
    assert located(error, files) is error
