"""Sequences of HDF5 files, one by one or in batches, for torch's DataLoader and whoever else trains."""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from samba_onnx.errors import DataError
from samba_onnx.tools.data_prep.libraries import library
from samba_onnx.tools.data_prep.token_types import DATASETS, Integers

_CACHE_BYTES = 8 << 20
"""Memory for chunks of a dataset that are likely to be read again."""


class HDF5Dataset:
    """The sequences of the files ``train_1_of_N.hdf5``, ``train_2_of_N.hdf5``, ... of a folder.

    It can be handed to ``torch.utils.data.DataLoader``, which makes int32 tensors (batch, length) of
    what it returns; torch itself is not needed. Files are opened on first use, in each process of its
    own, so that workers of a DataLoader may share it. Use it in a ``with`` statement, or call
    ``close``, where files must not stay open.
    """

    def __init__(
        self, path: str | os.PathLike[str], split: str = "train", *, in_memory: bool = False
    ) -> None:
        """Look at the files.

        Args:
            path: A folder that the data preparation has written, or a single HDF5 file.
            split: ``train`` or ``dev``; for a folder only.
            in_memory: Whether to read everything now. Sequences in random order come much faster
                from memory than from compressed files.

        Raises:
            DataError: There are no such files, one is missing, or one has other contents.
            UsageError: h5py is not installed.
        """
        self._paths = dataset_files(Path(path), split)
        self._files: dict[int, Any] = {}
        self._process = os.getpid()
        shapes = [self._shape(place) for place in range(len(self._paths))]
        names = {names for names, _, _ in shapes}
        lengths = {length for _, _, length in shapes}
        if len(names) > 1 or len(lengths) > 1:
            raise DataError(f"{path}: its files have sequences of different lengths or contents")
        (self._names,), (self.max_seq_length,) = names, lengths
        self._ends = list(accumulate(count for _, count, _ in shapes))
        self._contents: dict[str, Integers] | None = None
        if in_memory:
            self._contents = self._everything()

    def __len__(self) -> int:
        """Return the number of sequences."""
        return self._ends[-1]

    def __getitem__(self, index: int) -> dict[str, Integers]:
        """Return one sequence.

        Args:
            index: From 0; a negative one counts from the end.

        Returns:
            ``input_ids`` and ``token_type_ids``, and ``category_ids`` if the files have them, each
            an int32 array (length,).

        Raises:
            IndexError: There is no such sequence.
        """
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        if self._contents is not None:
            return {name: values[place] for name, values in self._contents.items()}
        number = bisect.bisect_right(self._ends, place)
        row = place - (self._ends[number - 1] if number else 0)
        file = self._open(number)
        return {name: file[name][row] for name in self._names}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: open files are not handed over."""
        return self.__dict__ | {"_files": {}}

    def close(self) -> None:
        """Close all files; the next access opens them again."""
        for file in self._files.values():
            file.close()
        self._files = {}

    def _open(self, number: int) -> Any:
        if self._process != os.getpid():
            # A forked worker: the parent's handles share a place in the file with it.
            self._files, self._process = {}, os.getpid()
        if number not in self._files:
            path = self._paths[number]
            try:
                file = library("h5py").File(path, "r", rdcc_nbytes=_CACHE_BYTES)
            except OSError as error:
                raise DataError(f"{path}: this is no HDF5 file: {error}", path=path) from None
            self._files[number] = file
        return self._files[number]

    def _shape(self, number: int) -> tuple[tuple[str, ...], int, int]:
        """Return the names of the datasets of a file, its number of sequences, and their length."""
        file, path = self._open(number), self._paths[number]
        names = tuple(name for name in DATASETS if name in file)
        shapes = {file[name].shape for name in names}
        if names[:2] != DATASETS[:2] or len(shapes) > 1 or any(len(size) != 2 for size in shapes):
            raise DataError(
                f"{path}: expected input_ids and token_type_ids (sequences, length) in this file",
                path=path,
            )
        ((count, length),) = shapes
        return names, count, length

    def _everything(self) -> dict[str, Integers]:
        files = [self._open(number) for number in range(len(self._paths))]
        contents = {name: np.concatenate([file[name][:] for file in files]) for name in self._names}
        self.close()
        return contents


def dataset_files(path: Path, split: str) -> Sequence[Path]:
    """Return the HDF5 files of a split in their order.

    Args:
        path: A folder, or a single file.
        split: ``train`` or ``dev``.

    Raises:
        DataError: There are none, or one of them is missing.
    """
    if path.is_file():
        return (path,)
    pattern = re.compile(rf"{re.escape(split)}_(\d+)_of_(\d+)\.hdf5")
    matches = [match for item in path.glob("*.hdf5") if (match := pattern.fullmatch(item.name))]
    counts = {int(match[2]) for match in matches}
    # Two totals are left of two runs, and a missing file of one that was copied in part.
    if len(counts) != 1 or len(matches) != max(counts):
        names = ", ".join(sorted(match[0] for match in matches)) or f"no {split}_1_of_N.hdf5"
        raise DataError(
            f"{path}: expected {split}_1_of_N.hdf5 to {split}_N_of_N.hdf5, but there is {names}",
            path=path,
        )
    matches.sort(key=lambda match: int(match[1]))
    return tuple(path / match[0] for match in matches)
