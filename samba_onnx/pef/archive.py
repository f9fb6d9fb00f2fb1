"""The zip around a PEF's members, in the one form that is ever written or accepted.

Names and sizes determine every byte that is not a member's content: headers, padding, directory
and end. The writer computes them, the reader computes them again and compares. Only the CRCs that
zip demands and the seal depend on content.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from samba_onnx.errors import PefFormatError
from samba_onnx.pef.manifest import FORMAT_VERSION

__all__ = [
    "ALIGNMENT",
    "Listing",
    "MemberSlot",
    "central_directory",
    "end_of_archive",
    "find_directory",
    "local_header",
    "parse_directory",
    "place",
    "seal_of",
]

ALIGNMENT = 4096
"""Every member's content begins at a multiple of this: the page size, so that it can be mapped."""

MAGIC = b"PK\x03\x04"
SEAL = "samba-onnx pef {version} sha256 {digest}"
SEAL_PATTERN = re.compile(rb"samba-onnx pef ([0-9]{1,9}) sha256 ([0-9a-f]{64})")
TAIL = 65536 + 22
"""The end of a zip file, comment included, lies within this many last bytes."""

# Little endian throughout, as zip demands whatever the machine is.
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_DATE = 0x0021  # 1980-01-01, the earliest that zip can express: no time stamps in a PEF
_MADE_BY = (3 << 8) | 45  # Unix, so that the permissions below mean something
_PERMISSIONS = 0o100644 << 16
# Values from these on stand in the Zip64 field, and these numbers in their place.
_FULL32 = 0xFFFFFFFF
_FULL16 = 0xFFFF
_PADDING_ID = 0xD935  # the extra field by which Android aligns members of its packages
_PADDING = struct.Struct("<3H")


@dataclass(frozen=True)
class MemberSlot:
    """Where one member lies in the file."""

    name: str
    bytes: int
    header_offset: int
    offset: int
    """Absolute offset of the content, a multiple of ``ALIGNMENT``."""

    @property
    def end(self) -> int:
        """Absolute offset behind the content."""
        return self.offset + self.bytes


@dataclass(frozen=True)
class Listing:
    """One entry of a central directory as read."""

    name: str
    bytes: int
    crc: int
    stored: bool
    """Neither compressed nor encrypted."""


def place(sizes: Iterable[tuple[str, int]]) -> tuple[MemberSlot, ...]:
    """Return where members of these names and sizes lie, in this order from the file's start."""
    slots: list[MemberSlot] = []
    position = 0
    for name, size in sizes:
        # The name's length moves the content, so that sizes alone do not place it. Room for an
        # empty padding field is kept, since a gap smaller than the field could not be filled.
        least = position + _LOCAL.size + len(name.encode()) + len(_local_extra64(size))
        offset = -(-(least + _PADDING.size) // ALIGNMENT) * ALIGNMENT
        slots.append(MemberSlot(name, size, position, offset))
        position = offset + size
    return tuple(slots)


def _local_extra64(size: int) -> bytes:
    # Number 1 is Zip64's field; a local header must hold both sizes in it, even where they are
    # equal.
    return struct.pack("<2H2Q", 1, 16, size, size) if size >= _FULL32 else b""


def local_header(slot: MemberSlot, crc: int) -> bytes:
    """Return everything before a member's content: header, name, extra fields with padding."""
    large = slot.bytes >= _FULL32
    name, extra = slot.name.encode(), _local_extra64(slot.bytes)
    gap = slot.offset - slot.header_offset - _LOCAL.size - len(name) - len(extra)
    # The padding is an extra field and not bytes between members: any zip reader skips it, and none
    # can hide data there, because the reader computes it again.
    extra += _PADDING.pack(_PADDING_ID, gap - 4, ALIGNMENT) + bytes(gap - _PADDING.size)
    size = _FULL32 if large else slot.bytes
    # The version of zip that is needed to read it: 4.5 knows Zip64, 1.0 all that is stored.
    version = 45 if large else 10
    fixed = (MAGIC, version, 0, 0, 0, _DATE, crc, size, size, len(name), len(extra))
    return _LOCAL.pack(*fixed) + name + extra


def central_directory(slots: Sequence[MemberSlot], crcs: Sequence[int]) -> bytes:
    """Return the zip's directory."""
    return b"".join(_directory_entry(slot, crc) for slot, crc in zip(slots, crcs, strict=True))


def _directory_entry(slot: MemberSlot, crc: int) -> bytes:
    # In the directory, unlike in a local header, the field has only what does not fit, in this
    # order.
    wide = [slot.bytes] * 2 if slot.bytes >= _FULL32 else []
    wide += [slot.header_offset] if slot.header_offset >= _FULL32 else []
    extra = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    name, size = slot.name.encode(), min(slot.bytes, _FULL32)
    versions = (_MADE_BY, 45 if wide else 10)
    lengths = (len(name), len(extra), 0, 0, 0)
    where = (_PERMISSIONS, min(slot.header_offset, _FULL32))
    fixed = (b"PK\x01\x02", *versions, 0, 0, 0, _DATE, crc, size, size, *lengths, *where)
    return _CENTRAL.pack(*fixed) + name + extra


def end_of_archive(slots: Sequence[MemberSlot], directory: bytes, seal: bytes) -> bytes:
    """Return everything behind the directory; ``seal`` becomes the zip's comment."""
    count, size = len(slots), len(directory)
    offset = slots[-1].end if slots else 0
    wide = b""
    # Zip64's end is written only where it is needed: a file has one form, and old readers read
    # small ones.
    if count >= _FULL16 or size >= _FULL32 or offset >= _FULL32:
        # The record's size does not count its first 12 bytes.
        record = (b"PK\x06\x06", _END64.size - 12, _MADE_BY, 45, 0, 0, count, count, size, offset)
        wide = _END64.pack(*record) + _LOCATOR.pack(b"PK\x06\x07", 0, offset + size, 1)
    few = min(count, _FULL16)
    end = (b"PK\x05\x06", 0, 0, few, few, min(size, _FULL32), min(offset, _FULL32), len(seal))
    return wide + _END.pack(*end) + seal


def seal_of(manifest: bytes | memoryview, directory: bytes | memoryview) -> bytes:
    """Return the seal: format version and SHA-256 over the manifest, then the directory.

    The manifest holds the SHA-256 of every other member, so the seal covers the whole file.
    """
    # Over the manifest and the directory only: the manifest has the digest of each member, so that
    # a file of many GB is sealed without reading it a second time.
    digest = hashlib.sha256(manifest)
    digest.update(directory)
    return SEAL.format(version=FORMAT_VERSION, digest=digest.hexdigest()).encode()


def find_directory(tail: bytes, size: int) -> tuple[int, int]:
    """Return absolute offset and size of the directory.

    Args:
        tail: The last bytes of the file, up to ``TAIL`` of them, ending with the seal.
        size: Bytes in the file.

    Raises:
        PefFormatError: There is no zip end in front of the seal, or it points outside the file.
    """
    # A seal has the same length whatever it covers, as long as the version has one digit.
    seal_bytes = len(seal_of(b"", b""))
    end = len(tail) - seal_bytes - _END.size
    if end < 0 or tail[end : end + 4] != b"PK\x05\x06":
        # The search is for one place, not for a signature somewhere in the tail: a zip comment
        # could contain another end.
        raise PefFormatError("the end of the archive is damaged")
    *_, directory_bytes, offset, _comment = _END.unpack_from(tail, end)
    wide = end - _LOCATOR.size - _END64.size
    if wide >= 0 and tail[end - _LOCATOR.size : end].startswith(b"PK\x06\x07"):
        *_, directory_bytes, offset = _END64.unpack_from(tail, wide)
    # Checked before anything is read there, for the numbers come from the file.
    if offset + directory_bytes > size:
        raise PefFormatError(
            f"the directory ends at byte {offset + directory_bytes} of a file of {size} bytes"
        )
    return offset, directory_bytes


def parse_directory(directory: bytes) -> tuple[Listing, ...]:
    """Read names, sizes and CRCs; everything else is checked by computing the directory again.

    Raises:
        PefFormatError: An entry is cut off, has no signature or a name that is not ASCII.
    """
    listings: list[Listing] = []
    position = 0
    while position < len(directory):
        if len(directory) - position < _CENTRAL.size:
            raise PefFormatError("the archive's directory is cut off")
        fields = _CENTRAL.unpack_from(directory, position)
        signature, _, _, flags, method, _, _, crc, _, size, name_bytes, extra_bytes, comment = (
            fields[:13]
        )
        behind_name = position + _CENTRAL.size + name_bytes
        name = directory[position + _CENTRAL.size : behind_name]
        extra = directory[behind_name : behind_name + extra_bytes]
        # ASCII only: zip has two encodings of names and a flag that tells them apart, and readers
        # disagree.
        if signature != b"PK\x01\x02" or not name.isascii():
            raise PefFormatError("the archive's directory is damaged")
        # Whether the Zip64 field is the right one is not asked here. The directory is computed
        # again from what was read, and must come out the same.
        if size == _FULL32 and len(extra) >= 12:
            (size,) = struct.unpack_from("<Q", extra, 4)
        listings.append(Listing(name.decode("ascii"), size, crc, method == 0 and not flags & 1))
        # A comment is stepped over, and refused when the directory is compared.
        position = behind_name + extra_bytes + comment
    return tuple(listings)
