"""Where a weight's bytes come from when a PEF is written, read piece by piece."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from samba_onnx.errors import ModelFileError, UsageError
from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.pef.packing import pack
from samba_onnx.safety.files import open_regular, printable
from samba_onnx.safety.system import read_into

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CHUNK", "FileRegion", "Source", "file_chunks", "source_bytes", "source_chunks"]

CHUNK = 256 << 10
"""Bytes handled at a time: small enough that what was read is still in the processor's cache when
it is hashed and written."""


@dataclass(frozen=True)
class FileRegion:
    """A range of bytes of a file, as external data of an ONNX model is."""

    file: str | os.PathLike[str] | int
    """A path, or a descriptor that stays open until the PEF is written."""
    offset: int
    length: int


Source: TypeAlias = (
    "bytes | bytearray | memoryview | np.ndarray | FileRegion | Callable[[], Iterable[bytes]]"
)
"""Bytes in packed little-endian form, an array, a file's region, or a function that yields such
bytes piece by piece each time it is called."""


class Sized(Protocol):
    """What ``source_chunks`` needs to know about a tensor."""

    @property
    def name(self) -> str:
        """Name of the tensor, for messages."""

    @property
    def type(self) -> str:
        """``tensor(float)``."""

    @property
    def bytes(self) -> int:
        """Packed size."""


def source_bytes(source: Source, type_text: str) -> int | None:
    """Return how many packed bytes a source will give; None when only reading it can tell.

    Args:
        source: The source.
        type_text: ONNX's text form of the tensor's type.

    Raises:
        UsageError: An array's dtype is not the one of the type, or it is no source at all.
    """
    # Lazy, like everywhere in this room: a manifest is read without numpy.
    import numpy as np

    if isinstance(source, FileRegion):
        return source.length
    if isinstance(source, np.ndarray):
        element = tensor_element(type_text)
        if element is None or source.dtype != element.numpy:
            raise UsageError(f"an array of {source.dtype} cannot be stored as {type_text}")
        return (source.size * element.bits + 7) // 8
    if isinstance(source, bytes | bytearray | memoryview):
        return memoryview(source).nbytes
    if callable(source):
        # How much a function yields is known only when it was called; `source_chunks` counts.
        return None
    raise UsageError(f"a {type(source).__name__} cannot be the source of a weight")


def source_chunks(source: Source, tensor: Sized) -> Iterator[memoryview]:
    """Yield a tensor's packed bytes; a chunk may be overwritten when the next one is asked for.

    Args:
        source: Where they come from.
        tensor: What they belong to.

    Raises:
        UsageError: The source gives another number of bytes than the tensor has.
        ModelFileError: A file cannot be read, or ends early.
    """
    done = 0
    for chunk in _chunks(source, tensor.type):
        view = memoryview(chunk).cast("B")
        done += len(view)
        # Stopped at once: a source that never ends must not fill the disk.
        if done > tensor.bytes:
            break
        yield view
    if done != tensor.bytes:
        raise UsageError(
            f"weight {printable(tensor.name)}: its source gives "
            f"{'more' if done > tensor.bytes else 'fewer'} than {tensor.bytes} bytes"
        )


def _chunks(source: Source, type_text: str) -> Iterator[bytes | memoryview]:
    import numpy as np

    if isinstance(source, FileRegion):
        yield from _region_chunks(source)
    elif isinstance(source, np.ndarray):
        yield from _array_chunks(source, type_text)
    elif isinstance(source, bytes | bytearray | memoryview):
        view = memoryview(source).cast("B")
        for start in range(0, len(view), CHUNK):
            yield view[start : start + CHUNK]
    else:
        yield from source()


def _array_chunks(array: np.ndarray, type_text: str) -> Iterator[memoryview]:
    """Yield an array's bytes in C order without a contiguous copy of the whole."""
    import numpy as np

    element = tensor_element(type_text)
    # Packing makes a copy, of half the array's size at most.
    if element is not None and element.packs:
        yield pack(array, element).data
    elif array.flags.c_contiguous:
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, CHUNK):
            yield flat[start : start + CHUNK].data
    # Small enough to copy in one go.
    elif array.size * array.itemsize <= CHUNK:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    else:
        # Rows of the first axis, as many as fit a chunk; a row that does not fit is cut along the
        # next axis.
        rows = max(1, CHUNK // max(1, array[0].size * array.itemsize))
        for start in range(0, len(array), rows):
            yield from _array_chunks(_contiguous_or_parts(array[start : start + rows]), type_text)


def _contiguous_or_parts(rows: np.ndarray) -> np.ndarray:
    """Copy rows that fit a chunk; descend into a single row that does not."""
    import numpy as np

    if rows.size * rows.itemsize <= CHUNK:
        return np.ascontiguousarray(rows)
    row: np.ndarray = rows[0]
    return row


def _region_chunks(region: FileRegion) -> Iterator[memoryview]:
    # A descriptor belongs to the caller, and may be of a file that has no name any more.
    if isinstance(region.file, int):
        yield from file_chunks(region.file, region.offset, region.length)
        return
    try:
        # A path could be a FIFO or a device by now, which open_regular refuses.
        with open_regular(region.file, what="external data file") as file:
            yield from file_chunks(file.fileno(), region.offset, region.length)
    except ModelFileError:
        raise
    except OSError as error:
        raise ModelFileError(f"{printable(region.file)}: {error.strerror}") from None


def file_chunks(descriptor: int, offset: int, length: int) -> Iterator[memoryview]:
    """Yield a range of a file through one buffer of ``CHUNK`` bytes.

    Reading is preferred to mapping: a file cut off meanwhile gives an error instead of a signal,
    and no page of it counts as this process's memory.

    Raises:
        ModelFileError: The file ends before the range does.
    """
    buffer = memoryview(bytearray(min(CHUNK, length)))
    done = 0
    while done < length:
        count = read_into(descriptor, buffer[: length - done], offset + done)
        if count == 0:
            raise ModelFileError(f"a file ends {length - done} bytes too early at {offset + done}")
        yield buffer[:count]
        done += count
