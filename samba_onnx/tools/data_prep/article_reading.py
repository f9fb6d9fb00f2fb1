"""Files of lines: which there are, and their lines in batches of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from samba_onnx.errors import DataError, UsageError
from samba_onnx.safety.files import open_regular

SUFFIXES = (".jsonl", ".txt")
BATCH_BYTES = 1 << 20
"""Bytes of text that are tokenized at once."""


@dataclass(frozen=True)
class Lines:
    """Some lines that follow one another."""

    texts: list[str]
    """Each with its line feed only where that was asked for."""
    first: int
    """Number of the first line in its file, from 1."""
    size: int
    """Bytes that they take in the file."""
    replaced: int
    """Lines with bytes that are not UTF-8; U+FFFD stands in their place."""


def find_input(path: Path, *, folders: bool) -> tuple[Path, ...]:
    """Return the files that an input names.

    Args:
        path: A ``.jsonl`` or ``.txt`` file, or a folder of files of one of these kinds.
        folders: Whether it may be a folder.

    Returns:
        The files by name; all of one suffix.

    Raises:
        UsageError: There is no such file, its suffix is another one, or the folder has none or both.
        DataError: All files together hold one byte at most.
    """
    if path.is_dir() and folders:
        files = tuple(sorted(item for item in path.iterdir() if item.suffix in SUFFIXES))
        if len({item.suffix for item in files}) != 1:
            has = "both" if files else "neither"
            raise UsageError(
                f"{path}: expected a folder of .jsonl or of .txt files, but it has {has}"
            )
    else:
        files = (path,)
        if path.suffix not in SUFFIXES:
            raise UsageError(f"{path}: expected a .jsonl or .txt file")
    for item in files:
        # Tried now, before anything is written that would be of no use.
        open_regular(item, what="input", error=DataError).close()
    if sum(item.stat().st_size for item in files) <= 1:
        raise DataError(f"{path}: the input is empty", path=path)
    return files


def read_blocks(path: Path, size: int) -> Iterator[bytes]:
    """Yield a file in pieces that end with a line.

    Args:
        path: The file.
        size: Bytes of a piece, about; a line is never cut, however long it is.

    Raises:
        DataError: It cannot be read.
    """
    with open_regular(path, what="input", error=DataError) as file:
        while block := _read(file, size, path):
            yield block


def _read(file: BinaryIO, size: int, path: Path) -> bytes:
    try:
        block = file.read(size)
        return block + file.readline() if not block.endswith(b"\n") else block
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}", path=path) from None


def read_lines(path: Path, *, keep_ends: bool) -> Iterator[Lines]:
    """Yield the lines of a file.

    Lines end with a line feed, a carriage return, or both, as in Python's text files.

    Args:
        path: The file.
        keep_ends: Whether lines keep a line feed at their end, where they have any end.

    Raises:
        DataError: It cannot be read.
    """
    number = 1
    for block in read_blocks(path, BATCH_BYTES):
        text, replaced = _decode(block)
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        # By line feeds only: splitlines ends lines at form feeds and Unicode's separators, too.
        texts = text.split("\n")
        # What is behind the last line feed is a line only if there is something.
        last = texts.pop()
        if keep_ends:
            texts = [f"{line}\n" for line in texts]
        if last:
            texts.append(last)
        yield Lines(texts, number, len(block), replaced)
        number += len(texts)


def _decode(block: bytes) -> tuple[str, int]:
    """Return text, and the number of lines in which bytes were replaced."""
    try:
        return block.decode(), 0
    except UnicodeDecodeError:
        lines = block.split(b"\n")
        # A line that comes back as it was had nothing to ignore.
        bad = sum(line.decode(errors="ignore").encode() != line for line in lines)
        return block.decode(errors="replace"), bad
