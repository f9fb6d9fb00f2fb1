"""Weights that stay in their files: content is read when it is asked for, and no path is opened twice."""

from __future__ import annotations

import hashlib
import os
import weakref
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes  # noqa: F401  (registers bfloat16 and the small floats with numpy)
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from samba_onnx.errors import ModelFileError
from samba_onnx.pef.original_files import OriginalFile
from samba_onnx.pef.sources import FileRegion, file_chunks
from samba_onnx.safety.files import open_beneath
from samba_onnx.safety.system import read_into

__all__ = ["ExternalFiles", "FileTensor", "HeldFile"]


class HeldFile:
    """A file that stays open for reading as long as something refers to it.

    Reading is preferred to mapping: what was read can be freed at once, while every page of a
    mapping that was looked at counts as this process's memory; and a file that is cut off
    meanwhile gives an error instead of a signal.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Keep a duplicate of the descriptor of an open regular file."""
        # A duplicate, since the caller closes its own file. It is closed with the last tensor that
        # needs it.
        self.descriptor = os.dup(file.fileno())
        self.size = os.fstat(self.descriptor).st_size
        # A finaliser runs when the interpreter ends as well, and holds the descriptor alone.
        weakref.finalize(self, os.close, self.descriptor)

    def read(self, offset: int, length: int) -> npt.NDArray[np.uint8]:
        """Return a range of bytes as a new array.

        Raises:
            ModelFileError: The file ends before the range does.
        """
        content = np.empty(length, np.uint8)
        done = 0
        while done < length:
            count = read_into(self.descriptor, content[done:].data, offset + done)
            if count == 0:
                raise ModelFileError(
                    f"the model's file or external data was cut off at byte {offset + done} while "
                    "it was being read"
                )
            done += count
        return content

    def sha256(self) -> str:
        """Return the SHA-256 of the whole file in hexadecimal, which takes about 0.7 s per GB.

        Raises:
            ModelFileError: The file is shorter than when it was opened.
        """
        digest = hashlib.sha256()
        for chunk in file_chunks(self.descriptor, 0, self.size):
            digest.update(chunk)
        return digest.hexdigest()


class FileTensor(ir.LazyTensor):
    """A tensor whose content is a range of a file, read anew on each access."""

    __slots__ = ("_file", "region")

    def __init__(self, file: HeldFile, external: ir.ExternalTensor) -> None:
        """Take type, shape and place from ``external``, whose range was checked."""
        super().__init__(
            self._read,
            external.dtype,
            ir.Shape(external.shape.numpy()),
            name=external.name,
            doc_string=external.doc_string,
            metadata_props=dict(external.metadata_props),
        )
        self._file = file
        self.region = FileRegion(file.descriptor, external.offset or 0, external.nbytes)
        """Where the bytes are, for copying them without reading them as a whole."""

    def _read(self) -> ir.TensorProtocol:
        content = self._file.read(self.region.offset, self.region.length)
        shape = self.shape.numpy()
        # Elements that share bytes stay packed until somebody computes with them.
        if self.dtype.bitwidth < 8:
            return ir.PackedTensor(content, self.dtype, shape=ir.Shape(shape), name=self.name)
        array: npt.NDArray[Any] = content.view(self.dtype.numpy()).reshape(shape)
        return ir.Tensor(array, self.dtype, name=self.name)


class ExternalFiles:
    """The files beside a model that hold its external data, each opened once.

    A tensor made here keeps the open file, not a path: nothing that happens to the folder later
    can redirect it to another file.
    """

    def __init__(self, folder: Path | None) -> None:
        """Prepare to open files in ``folder``; without one there can be none."""
        self._folder = folder
        self._held: dict[str, HeldFile] = {}

    def add(self, location: str, file: BinaryIO) -> None:
        """Let ``location`` stand for a file that is already open."""
        self._held[location] = HeldFile(file)

    def size(self, location: str) -> int:
        """Return the size in bytes of the file at ``location``.

        Raises:
            ModelFileError: It is no regular file inside the model's folder.
        """
        return self._file(location).size

    def digests(self, own: str, name: str) -> tuple[OriginalFile, ...]:
        """Return all files that were opened, with their digests: the model's own file, then the others by name.

        Args:
            own: The location that stands for the model's own file.
            name: What the model's own file is called.

        Raises:
            ModelFileError: A file is shorter than when it was opened.
        """
        # Sorted: files are opened in the order in which tensors name them, and equal models have
        # equal records.
        others = sorted(self._held.keys() - {own})
        held = [(name, self._held[own]), *((place, self._held[place]) for place in others)]
        return tuple(OriginalFile(place, file.size, file.sha256()) for place, file in held)

    def _file(self, location: str) -> HeldFile:
        file_of_location = self._held.get(location)
        if file_of_location is None:
            if self._folder is None:
                raise ModelFileError(
                    "its external data cannot be found without the model's folder: give the "
                    "model's path, or load its external data before"
                )
            # Strictly inside the folder: a model must not read other files of its user.
            with open_beneath(self._folder, location, what="external data file") as file:
                file_of_location = self._held[location] = HeldFile(file)
        return file_of_location

    def tensor(self, external: ir.ExternalTensor) -> FileTensor:
        """Return the tensor that ``external`` describes, over the open file.

        Args:
            external: A tensor that ``check_model`` has passed with ``size`` of this object.
        """
        return FileTensor(self._file(str(external.location)), external)
