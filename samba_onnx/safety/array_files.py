"""Arrays in ``.npy`` and ``.npz`` files of users: headers are checked before memory is taken; nothing is unpickled."""

from __future__ import annotations

import contextlib
import io
import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from samba_onnx.errors import ModelLimitError, SambaError, UsageError
from samba_onnx.safety.archives import open_archive
from samba_onnx.safety.files import open_regular, printable

__all__ = ["array_archive", "array_shapes", "read_array", "read_npy", "sample_shapes"]

Array = npt.NDArray[Any]


def read_array(path: str) -> Array:
    """Read the array of an ``.npy`` file.

    Args:
        path: The file.

    Raises:
        UsageError: It cannot be used.
    """
    with open_regular(path, what="constant", error=UsageError) as file:
        return read_npy(file, path)


def sample_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read the shapes of ``--sample-input`` options.

    Args:
        texts: ``INPUT=FILE``; ``FILE.npy`` for the only input; or ``FILE.npz``, which names its arrays.

    Returns:
        Shapes by input name; an empty name for the only input.

    Raises:
        UsageError: A file cannot be used, or an input is given twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, path = text.rpartition("=")
        if Path(text).exists():  # its name may hold "="
            name, equals, path = "", "", text
        suffix = Path(path).suffix.lower()
        if suffix not in {".npy", ".npz"} or (equals and not name):
            raise UsageError(
                f"--sample-input {text}: expected INPUT=FILE.npy, FILE.npy for a model with one input, "
                "or FILE.npz with arrays by input"
            )
        if suffix == ".npz":
            found = array_shapes(path)
            if name:
                only = found.get(name, next(iter(found.values())) if len(found) == 1 else None)
                found = {} if only is None else {name: only}
        else:
            with open_regular(path, what="input", error=UsageError) as file:
                found = {name: _header(file, path).shape}
        if not found or set(found) & set(shapes):
            twice = "is given twice" if found else f"has no array {name!r}"
            raise UsageError(f"--sample-input {text}: {next(iter(found), path)!r} {twice}")
        shapes |= found
    return shapes


@contextlib.contextmanager
def array_archive(path: str) -> Iterator[zipfile.ZipFile]:
    """Open an ``.npz``; what is wrong with it is the user's to mend.

    Args:
        path: The file.

    Raises:
        UsageError: It cannot be used.
    """
    name = printable(path)
    try:
        with (
            open_regular(path, what="input", error=UsageError) as file,
            open_archive(file, name) as archive,
        ):
            yield archive
    except ModelLimitError as error:
        raise UsageError(str(error)) from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        if isinstance(error, SambaError):
            raise
        raise UsageError(f"{name}: not a usable .npz: {error}") from None


def array_shapes(path: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays of an ``.npz``, whose content is not read.

    Args:
        path: The file.

    Raises:
        UsageError: It cannot be used.
    """
    shapes = {}
    with array_archive(path) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:
                header = _header(member, f"{path}: {info.filename}", info.file_size)
                shapes[info.filename.removesuffix(".npy")] = header.shape
    return shapes


@dataclass(frozen=True)
class _Header:
    """What stands before the numbers of an array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """How many bytes the numbers take."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(
    file: IO[bytes],
    path: str,
    *,
    size: int | None = None,
    check: Callable[[tuple[int, ...]], object] = lambda shape: None,
) -> Array:
    """Read an array whose header is checked before memory is taken for it.

    Args:
        file: Open at its first byte.
        path: What it is called in messages.
        size: Bytes of all of it; None to look.
        check: Called with the shape before the numbers are read, to refuse it.

    Raises:
        UsageError: It is no usable array.
    """
    header = _header(file, path, size)
    check(header.shape)
    try:
        content = (
            np.frombuffer(_exactly(file, header.bytes), header.dtype)
            if header.bytes
            else np.empty(0, header.dtype)
        )
        return content.reshape(header.shape, order="F" if header.fortran else "C")
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{printable(path)}: not a usable .npy array: {error}") from None


def _header(file: IO[bytes], path: str, size: int | None = None) -> _Header:
    """Read a header; the file is at the array's first byte then.

    Args:
        file: Open at its first byte.
        path: What it is called in messages.
        size: Bytes of all of it; None to look.
    """
    try:
        if size is None:
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
        version = np.lib.format.read_magic(file)
        # The third version has names of fields in Unicode, and no input has fields.
        if version not in ((1, 0), (2, 0)):
            raise UsageError(
                f"{printable(path)}: not a usable .npy array: version {version} of the format is not "
                "known"
            )
        read = np.lib.format.read_array_header_1_0
        header = _Header(
            *(read if version == (1, 0) else np.lib.format.read_array_header_2_0)(file)
        )
    except (ValueError, TypeError, EOFError, SyntaxError, zipfile.BadZipFile) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{printable(path)}: not a usable .npy array: {error}") from None
    if header.dtype.hasobject:
        raise UsageError(f"{printable(path)}: holds Python objects, which are never unpickled")
    # Before memory is taken for it: a header of some bytes may promise terabytes.
    if header.bytes > size:
        raise UsageError(f"{printable(path)}: truncated: its header promises {header.bytes} bytes")
    return header


def _exactly(file: IO[bytes], size: int) -> bytes:
    content = file.read(size)
    if len(content) != size:
        raise ValueError(f"truncated: {len(content)} of {size} bytes")
    return content
