"""Lines in random order: every order is equally likely, and the same seed gives the same one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from samba_onnx.errors import InternalError, UsageError
from samba_onnx.tools.data_prep.libraries import library
from samba_onnx.tools.data_prep.reporting import Reporter
from samba_onnx.tools.data_prep.splitting import BLOCK_BYTES, input_blocks, open_all

BUCKET_BYTES = 64 << 20
"""Bytes of text that are shuffled in memory at once, where not all is."""
LINES_AT_ONCE = 1 << 16
"""Lines whose places are Python's numbers at the same time: those take ten times an array's."""
MOST_BUCKETS = 256
"""Files that are open at once while lines are thrown into buckets."""


def shuffle_in_memory(
    files: Sequence[Path], targets: Sequence[Path], seed: int, reporter: Reporter
) -> None:
    """Shuffle all lines in memory, and cut them into files of nearly equal numbers.

    Args:
        files: The input.
        targets: The files; the first ones have one line more.
        seed: Seed of the order.
        reporter: Hears of progress.

    Raises:
        UsageError: The input is larger than the memory that is free.
        OSError: A file cannot be written.
    """
    size = sum(path.stat().st_size for path in files)
    free = library("psutil").virtual_memory().available
    if size > free:
        raise UsageError(
            f"shuffle on_RAM: {size} bytes of text do not fit into {free} bytes of free memory: "
            "give --shuffle=large_file"
        )
    text = bytearray()  # which grows in place: joining pieces would need all of them twice
    for block in input_blocks(files):
        text += block
    order = np.random.default_rng(seed)
    count = text.count(b"\n") + (not text.endswith(b"\n"))
    _cut_into_files(_shuffled(text, order), count, targets, reporter)


def shuffle_large_file(
    files: Sequence[Path], targets: Sequence[Path], folder: Path, seed: int, reporter: Reporter
) -> None:
    """Shuffle lines that do not fit into memory, and cut them into files of nearly equal numbers.

    Every line is thrown into a bucket at random; buckets are shuffled in memory, one at a time, and
    follow one another. That is as random as one shuffle of everything.

    Args:
        files: The input.
        targets: The files; the first ones have one line more.
        folder: Where buckets may be, an empty folder of its own; it is empty again at the end.
        seed: Seed of the order.
        reporter: Hears of progress.

    Raises:
        OSError: A file cannot be written.
    """
    order = np.random.default_rng(seed)
    size = sum(path.stat().st_size for path in files)
    count, buckets = _throw(input_blocks(files), size, folder, "bucket", order)
    lines = (line for bucket in buckets for line in _emptied(bucket, folder, order))
    _cut_into_files(lines, count, targets, reporter)
    for _ in lines:  # there is none, but buckets are removed on the way to the end
        raise InternalError("a shuffled line belongs to no file")


def _throw(
    blocks: Iterable[bytes], size: int, folder: Path, name: str, order: np.random.Generator
) -> tuple[int, list[Path]]:
    """Throw lines into buckets; return the number of lines, and the buckets."""
    number = min(MOST_BUCKETS, max(1, math.ceil(size / BUCKET_BYTES)))
    paths = [folder / f"{name}_{place}" for place in range(number)]
    count = 0
    with open_all(paths) as buckets:
        for block in blocks:
            ends = _line_ends(block)
            places = order.integers(0, number, len(ends))
            begin = 0
            for end, place in zip(ends.tolist(), places.tolist(), strict=True):
                buckets[place].write(_whole_line(block[begin:end]))
                begin = end
            count += len(ends)
    return count, paths


def _emptied(bucket: Path, folder: Path, order: np.random.Generator) -> Iterator[bytes]:
    """Yield the lines of a bucket in random order, and remove it."""
    # Twice as much, as buckets that are filled at random are not equally large.
    if bucket.stat().st_size <= 2 * BUCKET_BYTES:
        yield from _shuffled(bucket.read_bytes(), order)
        bucket.unlink()
        return
    size = bucket.stat().st_size
    count, buckets = _throw(input_blocks([bucket]), size, folder, bucket.name, order)
    bucket.unlink()
    if count == 1:  # one line that is longer than a bucket
        texts = [path.read_bytes() for path in buckets]
        for path in buckets:
            path.unlink()
        yield b"".join(texts)
        return
    for smaller in buckets:
        yield from _emptied(smaller, folder, order)


def _shuffled(text: bytes | bytearray, order: np.random.Generator) -> Iterator[bytes]:
    """Yield the lines of a text in random order, each with its line feed."""
    ends = _line_ends(text)
    begins = np.concatenate([[0], ends[:-1]])
    places = order.permutation(len(ends))
    for part in range(0, len(places), LINES_AT_ONCE):
        some = places[part : part + LINES_AT_ONCE]
        for begin, end in zip(begins[some].tolist(), ends[some].tolist(), strict=True):
            yield _whole_line(bytes(text[begin:end]))


def _line_ends(text: bytes | bytearray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the places after the line feeds of a text, and its end if that is another place."""
    characters = np.frombuffer(text, np.uint8)
    # In pieces: a comparison of the whole text would be as large as the text.
    parts = [
        np.flatnonzero(characters[begin : begin + BLOCK_BYTES] == ord("\n")) + (begin + 1)
        for begin in range(0, len(text), BLOCK_BYTES)
    ]
    ends = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    if text and not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    return ends


def _whole_line(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n"


def _cut_into_files(
    lines: Iterator[bytes], count: int, targets: Sequence[Path], reporter: Reporter
) -> None:
    """Write consecutive parts of lines into files."""
    share, more = divmod(count, len(targets))
    for place, target in enumerate(targets):
        with open(target, "wb", buffering=1 << 20) as file:
            size = sum(file.write(line) for line in islice(lines, share + (place < more)))
        reporter.advance(size, share + (place < more))
