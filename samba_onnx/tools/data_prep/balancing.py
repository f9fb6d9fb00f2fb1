"""Files of one kind get equally many sequences, within one: training shares files out to workers."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import numpy as np

from samba_onnx.tools.data_prep.hdf5_files import (
    CHUNK_BYTES,
    open_for_writing,
    plane_names,
    sequence_count,
)
from samba_onnx.tools.data_prep.libraries import library
from samba_onnx.tools.data_prep.token_types import Integers

BLOCK_BYTES = 64 * CHUNK_BYTES
"""Bytes of one dataset that are moved at once."""


def balanced_counts(counts: Sequence[int]) -> list[int]:
    """Return how many sequences every file shall have.

    Args:
        counts: How many each has, in the order of the files.

    Returns:
        The average, rounded down; the first files have one more until the remainder is used up.
    """
    average, remainder = divmod(sum(counts), len(counts))
    return [average + (place < remainder) for place in range(len(counts))]


def balance(paths: Sequence[Path]) -> list[int]:
    """Move the last sequences of files that have too many to the end of files that have too few.

    Those that are given away are received in the order of the files. Nothing but the blocks that
    move is in memory.

    Args:
        paths: HDF5 files of this room, in their order.

    Returns:
        The number of sequences of every file afterwards.

    Raises:
        OutputError: A file cannot be written.
    """
    counts = [sequence_count(path) for path in paths]
    targets = balanced_counts(counts) if counts else []
    changes = list(zip(paths, counts, targets, strict=True))
    extras = [(path, target) for path, count, target in changes if count > target]
    # Closed at the end, so that no file is open for reading when it is shortened below.
    with contextlib.closing(_rest(extras)) as moving:
        _fill(changes, moving)
    # Last: a run that is interrupted before has some sequences twice, and has lost none.
    for path, target in extras:
        _shorten(path, target)
    return targets


def _fill(changes: Sequence[tuple[Path, int, int]], moving: Iterator[Integers]) -> None:
    """Append what moves to the files that have too few, in their order."""
    waiting: Integers | None = None
    for path, count, target in changes:
        while count < target:
            block = next(moving) if waiting is None else waiting
            taken, rest = block[:, : target - count], block[:, target - count :]
            waiting = rest if rest.shape[1] else None
            _append(path, taken)
            count += taken.shape[1]


def _rest(extras: Sequence[tuple[Path, int]]) -> Generator[Integers]:
    """Yield what files have beyond a number of sequences, (planes, sequences, length), in blocks."""
    for path, target in extras:
        with library("h5py").File(path, "r") as file:
            datasets = [file[name] for name in plane_names(file)]
            count, length = datasets[0].shape
            # Tokens and types are numbers of four bytes.
            rows = max(1, BLOCK_BYTES // (4 * length))
            for begin in range(target, count, rows):
                end = min(begin + rows, count)
                yield np.stack([dataset[begin:end] for dataset in datasets])


def _append(path: Path, sequences: Integers) -> None:
    with open_for_writing(path, "r+") as file:
        for name, plane in zip(plane_names(file), sequences, strict=True):
            begin = len(file[name])
            file[name].resize(begin + len(plane), axis=0)
            file[name][begin:] = plane


def _shorten(path: Path, count: int) -> None:
    with open_for_writing(path, "r+") as file:
        for name in plane_names(file):
            file[name].resize(count, axis=0)
