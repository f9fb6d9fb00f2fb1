"""Zip archives of unknown origin: their directories within bounds, and where their members lie."""

from __future__ import annotations

import struct
import zipfile
from typing import IO, Any, Final, cast

from samba_onnx.errors import ModelLimitError

__all__ = ["DIRECTORY_LIMIT", "open_archive", "stored_ranges"]

DIRECTORY_LIMIT: Final = 16 << 20
"""Bytes of a directory that are read: 200,000 members or more, each of which takes half a kilobyte of
memory; the largest checkpoint known has a hundredth of it."""
_LOCAL: Final = struct.Struct("<4s22xHH")
"""What stands before a member: signature, and the lengths of its name and of its extra fields."""
_SIGNATURE: Final = b"PK\x03\x04"
# The lowest bit of a member's flags.
_ENCRYPTED: Final = 1


class _WithoutLargeReads:
    """A file of which no large piece is read at once, until it is trusted.

    The end of an archive says how large its directory is, and ``zipfile`` reads as much at once, which
    in a file with a hole is any number of bytes.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name, self.trusted = file, name, False

    def read(self, size: int = -1) -> bytes:
        if self.trusted:
            return self._file.read(size)
        # It reads "all", too: the last 64 KiB, where the end of the directory is looked for.
        content = self._file.read(min(size, DIRECTORY_LIMIT) if size >= 0 else DIRECTORY_LIMIT)
        if size > DIRECTORY_LIMIT or len(content) == DIRECTORY_LIMIT:
            raise ModelLimitError(
                f"{self._name}: the directory of this archive takes more than "
                f"{DIRECTORY_LIMIT >> 20} MiB: it is damaged, or was never written by a program that "
                "saves tensors"
            )
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def open_archive(file: IO[bytes], name: str) -> zipfile.ZipFile:
    """Open an archive whose directory may claim anything.

    Args:
        file: The open file, which can be sought in; it stays open when the archive is closed.
        name: What the file is called in messages.

    Returns:
        The archive. Sizes of its members are what the directory says, and must be looked at by whoever
        reads them.

    Raises:
        ModelLimitError: Its directory is larger than any of a real file.
        BadZipFile: It is no archive, or has two members of one name.
    """
    guarded = _WithoutLargeReads(file, name)
    archive = zipfile.ZipFile(cast("IO[bytes]", guarded))  # a file in all that zipfile calls
    if len(archive.NameToInfo) != len(archive.filelist):
        # Which of the two is meant is another one to each reader.
        raise zipfile.BadZipFile("two of its members have the same name")
    guarded.trusted = True
    return archive


def stored_ranges(archive: zipfile.ZipFile, content: memoryview) -> dict[str, tuple[int, int]]:
    """Return where the members of an archive lie, all of which are stored as they are.

    Args:
        archive: An open archive.
        content: The whole file, mapped.

    Returns:
        Offset and size in bytes by the name of a member; every range is within the file.

    Raises:
        ModelLimitError: A member is compressed, so that the file's size bounds nothing.
        BadZipFile: A member is encrypted, or lies outside of the file.
    """
    ranges = {}
    for info in archive.infolist():
        # Both sizes, as the directory may claim that a member is stored and give it another size.
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise ModelLimitError(
                f"member {info.filename!r} is compressed, from which any size could come, and programs "
                "that save tensors compress nothing"
            )
        try:
            signature, name, extra = _LOCAL.unpack_from(content, info.header_offset)
        # A header beyond the end of the file.
        except struct.error:
            signature, name, extra = b"", 0, 0
        # The local header has lengths of its own; those of the directory may differ from them.
        offset = info.header_offset + _LOCAL.size + name + extra
        beyond = offset + info.file_size > len(content)
        if signature != _SIGNATURE or beyond or info.flag_bits & _ENCRYPTED:
            raise zipfile.BadZipFile(f"member {info.filename!r} is encrypted or cut off")
        ranges[info.filename] = offset, info.file_size
    return ranges
