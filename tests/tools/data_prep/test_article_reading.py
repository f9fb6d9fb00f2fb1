"""Files of lines: which are an input, where they are cut, and which number a line has."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from samba_onnx.errors import DataError
from samba_onnx.tools.data_prep import article_reading
from samba_onnx.tools.data_prep.article_reading import find_input, read_blocks, read_lines


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"abc\ndef\r\n\nlast")
    return path


@pytest.mark.parametrize(
    ("size", "blocks"),
    [
        (1, [b"abc\n", b"def\r\n", b"\n", b"last"]),
        (4, [b"abc\n", b"def\r\n", b"\nlast"]),
        (5, [b"abc\ndef\r\n", b"\nlast"]),
        (100, [b"abc\ndef\r\n\nlast"]),
    ],
)
def test_a_block_ends_with_the_line_in_which_its_size_is_reached(
    size: int, blocks: list[bytes], source: Path
) -> None:
    assert list(read_blocks(source, size)) == blocks


@pytest.mark.parametrize("size", [1, 5, 100])
def test_lines_are_numbered_through_all_blocks(
    size: int, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(article_reading, "BATCH_BYTES", size)
    for end in ("", "\n"):
        parts = list(read_lines(source, keep_ends=bool(end)))
        numbered = [pair for part in parts for pair in enumerate(part.texts, part.first)]
        assert numbered == [(1, f"abc{end}"), (2, f"def{end}"), (3, end), (4, "last")]
        assert sum(part.size for part in parts) == source.stat().st_size


def test_one_character_and_its_end_are_an_input(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"a\n")
    assert find_input(path, folders=False) == (path,)
    path.write_bytes(b"\n")
    with pytest.raises(DataError, match="the input is empty") as caught:
        find_input(path, folders=True)
    assert caught.value.path == str(path)


@pytest.mark.parametrize("read", [lambda path: find_input(path, folders=True), lambda path: next(read_blocks(path, 1))])  # fmt: skip
def test_what_cannot_be_opened_is_called_an_input(read: object, tmp_path: Path) -> None:
    path = tmp_path / "gone.txt"
    with pytest.raises(DataError, match=r"gone\.txt: cannot open this input: "):
        read(path)  # type: ignore[operator]


def test_a_disk_that_fails_is_an_error_with_the_file(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(article_reading, "open_regular", lambda *_, **__: Broken())
    with pytest.raises(DataError) as caught:
        list(read_blocks(source, 1))
    assert str(caught.value) == f"{source}: cannot read: Input/output error"
    assert caught.value.path == str(source)
