"""Files mapped into memory: content is read when it is looked at, and no path is opened twice."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import BinaryIO

import ml_dtypes  # noqa: F401  (registers bfloat16 and the small floats with numpy)
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from samba_onnx.errors import ModelFileError
from samba_onnx.safety.files import open_beneath

__all__ = ["ExternalFiles", "map_file"]


def map_file(file: BinaryIO) -> npt.NDArray[np.uint8]:
    """Map an open file; the mapping outlives the file object.

    Returns:
        Its bytes as a read-only array, of length 0 for an empty file.
    """
    size = os.fstat(file.fileno()).st_size
    if not size:
        return np.empty(0, np.uint8)
    return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)


class ExternalFiles:
    """The files beside a model that hold its external data, each opened and mapped once.

    A tensor made here keeps the mapping, not a path: nothing that happens to the folder later can
    redirect it to another file.
    """

    def __init__(self, folder: Path | None) -> None:
        """Prepare to open files in ``folder``; without one there can be none."""
        self._folder = folder
        self._mapped: dict[str, npt.NDArray[np.uint8]] = {}

    def add(self, location: str, content: npt.NDArray[np.uint8]) -> None:
        """Let ``location`` stand for content that is already mapped."""
        self._mapped[location] = content

    def size(self, location: str) -> int:
        """Return the size in bytes of the file at ``location``.

        Raises:
            ModelFileError: It is no regular file inside the model's folder.
        """
        return len(self._content(location))

    def _content(self, location: str) -> npt.NDArray[np.uint8]:
        content = self._mapped.get(location)
        if content is None:
            if self._folder is None:
                raise ModelFileError(
                    "its external data cannot be found without the model's folder: give the "
                    "model's path, or load its external data before"
                )
            with open_beneath(self._folder, location, what="external data file") as file:
                content = self._mapped[location] = map_file(file)
        return content

    def tensor(self, external: ir.ExternalTensor) -> ir.TensorProtocol:
        """Return the tensor that ``external`` describes, over the mapped file.

        Args:
            external: A tensor that ``check_model`` has passed with ``size`` of this object.
        """
        content = self._content(str(external.location))
        offset = external.offset or 0
        part = content[offset : offset + external.nbytes]
        shape = external.shape.numpy()
        name, doc_string = external.name, external.doc_string
        metadata = dict(external.metadata_props)
        dtype = external.dtype
        if dtype.bitwidth < 8:
            return ir.PackedTensor(
                part,
                dtype,
                shape=ir.Shape(shape),
                name=name,
                doc_string=doc_string,
                metadata_props=metadata,
            )
        array = part.view(dtype.numpy()).reshape(shape)
        return ir.Tensor(array, dtype, name=name, doc_string=doc_string, metadata_props=metadata)
