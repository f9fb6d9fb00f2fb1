"""Sequences in HDF5 files, as training reads them."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from samba_onnx.errors import OutputError, SambaError
from samba_onnx.safety.files import atomic_output
from samba_onnx.tools.data_prep.libraries import library
from samba_onnx.tools.data_prep.token_types import DATASETS, Integers

CHUNK_BYTES = 128 << 10
"""Bytes of a chunk: what is compressed, and read, as one."""
BLOCK_CHUNKS = 16
"""Chunks of sequences that are collected before they are written."""


class SequenceFile:
    """An HDF5 file that sequences are appended to."""

    def __init__(self, file: Any, length: int, planes: int) -> None:
        """Make empty datasets.

        Args:
            file: A ``h5py.File`` that is open for writing.
            length: Tokens of a sequence.
            planes: 2 for ids and types, 3 for categories as well.
        """
        self._rows = max(1, CHUNK_BYTES // (4 * length))
        self._datasets = [
            file.create_dataset(
                name,
                shape=(0, length),
                maxshape=(None, length),
                chunks=(self._rows, length),
                dtype=np.int32,
                compression="gzip",
            )
            for name in DATASETS[:planes]
        ]
        self._waiting: list[Integers] = []

    def append(self, sequences: Integers) -> None:
        """Append sequences; they are written in whole chunks, so that none is compressed twice.

        Args:
            sequences: (planes, sequences, length).
        """
        self._waiting.append(sequences)
        count = sum(block.shape[1] for block in self._waiting)
        if count >= self._rows * BLOCK_CHUNKS:
            self._write(count - count % self._rows)

    def finish(self) -> None:
        """Write what waits."""
        self._write(sum(block.shape[1] for block in self._waiting))

    def _write(self, count: int) -> None:
        """Write the first sequences that wait."""
        if not count:
            return
        block = np.concatenate(self._waiting, axis=1)
        self._waiting = [block[:, count:].copy()]
        for dataset, plane in zip(self._datasets, block[:, :count], strict=True):
            begin = len(dataset)
            dataset.resize(begin + count, axis=0)
            dataset[begin:] = plane


@contextlib.contextmanager
def new_sequence_file(path: Path, length: int, planes: int) -> Iterator[SequenceFile]:
    """Write an HDF5 file that appears in whole or not at all.

    Args:
        path: Where it shall be.
        length: Tokens of a sequence.
        planes: 2 for ids and types, 3 for categories as well.

    Yields:
        What sequences are appended to.

    Raises:
        OutputError: It cannot be written.
    """
    with (
        atomic_output(path) as temporary,
        open_for_writing(Path(temporary.name), "w", path) as file,
    ):
        sequences = SequenceFile(file, length, planes)
        yield sequences
        sequences.finish()


@contextlib.contextmanager
def open_for_writing(path: Path, mode: str, shown: Path | None = None) -> Iterator[Any]:
    """Open an HDF5 file so that a full disk is an error, and not the end of the process.

    What HDF5 could not write it tries to write again when it closes the file. Where that fails, too, it keeps
    structures that it has freed, and the process dies of them when Python forgets the file.

    Args:
        path: The file.
        mode: ``w`` or ``r+``.
        shown: What the file is called in messages, if not so.

    Yields:
        An open ``h5py.File``.

    Raises:
        OutputError: It cannot be written.
    """
    with write_errors(shown or path):
        # A new file is locked by whoever makes it, and by no other process; HDF5 would lock it once more.
        locking = False if mode == "w" else None
        file = library("h5py").File(path, mode, locking=locking)
        try:
            yield file
            file.flush()  # all of it now, while it can still be told
        except BaseException as error:
            if isinstance(error, OSError | RuntimeError) and not isinstance(error, SambaError):
                _give_up(file)
            with contextlib.suppress(OSError, RuntimeError):  # what came first says more
                file.close()
            raise
        file.close()


def _give_up(file: Any) -> None:
    """Let what HDF5 writes from now on go nowhere: the file is damaged already, and closing must not fail."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        # In memory where there is such a file: the null device cannot be cut to a length, as HDF5 does it.
        make = getattr(os, "memfd_create", None)
        nowhere = make("damaged") if make else os.open(os.devnull, os.O_RDWR)
        try:
            os.dup2(nowhere, file.id.get_vfd_handle(), inheritable=False)
        finally:
            os.close(nowhere)


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Name the file or folder in what libraries say when they cannot write, which they say in several ways.

    HDF5 raises a RuntimeError with the number of the system's error in its text; the tokenizers library an
    Exception of no class, with the number as Rust writes it.

    Args:
        path: The file, or the folder that something is written into.

    Raises:
        OutputError: In place of an error of the system or of a library.
    """
    try:
        yield
    except Exception as error:
        words = str(error)
        named = isinstance(error, OSError | RuntimeError) or "(os error " in words
        if isinstance(error, SambaError) or not named:
            raise  # one of ours, which names the file already; or none of writing
        full = "space left" in words or "errno = 28" in words
        cause = "no space left on the disk" if full else " ".join(words.split())
        raise OutputError(f"{path}: cannot write: {cause}", path=path) from error


def plane_names(file: Any) -> tuple[str, ...]:
    """Return the names of the datasets that a file of sequences has.

    Args:
        file: An open ``h5py.File``.
    """
    return tuple(name for name in DATASETS if name in file)


def sequence_count(path: Path) -> int:
    """Return the number of sequences in a file.

    Args:
        path: An HDF5 file that this room has written.
    """
    with library("h5py").File(path, "r") as file:
        return int(file[DATASETS[0]].shape[0])


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits.

    Args:
        path: The file.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
