"""An input is split into files of lines: in turn, or shuffled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from samba_onnx.errors import DataError, UsageError
from samba_onnx.tools.data_prep.article_reading import read_blocks
from samba_onnx.tools.data_prep.preparation_options import SplitOptions
from samba_onnx.tools.data_prep.reporting import Reporter

GIGABYTE = 1 << 30
BLOCK_BYTES = 16 << 20
"""Bytes that are read at once while lines are shared out."""


@dataclass(frozen=True)
class SplitCounts:
    """How many files of each kind there are."""

    train: int
    dev: int
    test: int

    @property
    def total(self) -> int:
        """All files."""
        return self.train + self.dev + self.test

    def names(self) -> list[tuple[str, str]]:
        """Return kind and name, without suffix, of every file, in the order in which lines are shared out."""
        counts = (("train", self.train), ("test", self.test), ("dev", self.dev))
        return [
            (kind, f"{kind}_{number}_of_{count}")
            for kind, count in counts
            for number in range(1, count + 1)
        ]


def split_counts(options: SplitOptions, size: int) -> SplitCounts:
    """Return how many files there will be.

    Args:
        options: What the user chose.
        size: Bytes of the input.

    Raises:
        UsageError: What the user chose contradicts itself, or leaves nothing to train on.
    """
    numbers = (options.num_training_splits, options.num_dev_splits, options.num_test_splits)
    ratios = (options.dev_ratio or 0.0, options.test_ratio or 0.0)
    train, dev, test = numbers
    if dev is not None or test is not None:
        if train is None or dev is None or test is None:
            raise UsageError(
                "num_dev_splits and num_test_splits need each other and num_training_splits: give "
                "all three, or ratios"
            )
        if options.dev_ratio is not None or options.test_ratio is not None:
            raise UsageError("numbers of splits and ratios were both given: give one of them")
    else:
        if not (min(ratios) >= 0 and sum(ratios) < 1):  # said so that NaN is refused, too
            raise UsageError(
                f"dev_ratio {ratios[0]} and test_ratio {ratios[1]}: expected parts from 0 to 1 "
                "that leave something to train on"
            )
        train = _default_count(size) if train is None else train
        # Ratios are of all files, and the training files are what they leave.
        total = int(train / (1 - ratios[0] - ratios[1]))
        test = int(total * ratios[1])
        dev = total - test - train
    if train < 1 or dev < 0 or test < 0:
        raise UsageError(
            f"{train} training, {dev} dev and {test} test files: expected one to train on"
        )
    return SplitCounts(train, dev, test)


def _default_count(size: int) -> int:
    """Return the number of training files for an input of some bytes."""
    if size < 10 * GIGABYTE:
        return 32
    return 128 if size < 100 * GIGABYTE else 256


def require_lines(files: Sequence[Path], count: int) -> None:
    """Refuse an input that has fewer lines than it is to be split into files.

    Args:
        files: The input.
        count: The number of files.

    Raises:
        DataError: A file would have no line.
    """
    lines = 0
    for block in input_blocks(files):
        lines += block.count(b"\n") + (not block.endswith(b"\n"))
        # No more of a large input is read than it takes to know.
        if lines >= count:
            return
    raise DataError(
        f"{files[0]}: {lines} lines cannot be split into {count} files: give fewer with "
        "--num_training_splits, or lower ratios",
        path=files[0],
    )


def input_blocks(files: Sequence[Path]) -> Iterator[bytes]:
    """Yield files, one after the other, in pieces of whole lines, of about ``BLOCK_BYTES`` each.

    The last line of a file gets the line feed that it may lack, unless nothing follows it. Carriage returns
    become line feeds, and so do those before one with it: lines end as in Python's text files.

    Args:
        files: The files.
    """
    for place, path in enumerate(files):
        for block in read_blocks(path, BLOCK_BYTES):
            if b"\r" in block:
                block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            complete = block.endswith(b"\n") or place == len(files) - 1
            yield block if complete else block + b"\n"


def split_in_turn(files: Sequence[Path], targets: Sequence[Path], reporter: Reporter) -> None:
    """Give every file one line in turn.

    Args:
        files: The input.
        targets: The files that lines are shared out to.
        reporter: Hears of progress.

    Raises:
        OSError: One cannot be written.
    """
    count, first = len(targets), 0
    with open_all(targets) as outputs:
        for block in input_blocks(files):
            lines = block.splitlines(keepends=True)
            # A write per file and block, not per line.
            for place in range(min(count, len(lines))):
                outputs[(first + place) % count].write(b"".join(lines[place::count]))
            first = (first + len(lines)) % count
            reporter.advance(len(block), len(lines))


@contextlib.contextmanager
def open_all(paths: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """Open files for writing, all at once.

    Args:
        paths: The files; what they hold is lost.

    Yields:
        The files, in the order of the paths.
    """
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(open(path, "wb", buffering=1 << 16)) for path in paths]
