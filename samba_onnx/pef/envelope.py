"""Read the archive around a PEF's members and hold it against the only form that is accepted."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from samba_onnx.errors import PefChecksumError, PefFormatError
from samba_onnx.pef import archive
from samba_onnx.pef.codec import MANIFEST_LIMIT, version_error
from samba_onnx.pef.layout import DIRECTORY_LIMIT, MANIFEST_MEMBER
from samba_onnx.pef.manifest import FORMAT_VERSION
from samba_onnx.safety.files import printable
from samba_onnx.safety.system import read_at

__all__ = ["Envelope", "read_envelope"]


@dataclass(frozen=True)
class Envelope:
    """A PEF's outside: every byte of it is checked except the content of members."""

    slots: tuple[archive.MemberSlot, ...]
    crcs: tuple[int, ...]
    manifest: bytes
    """Content of the last member, sealed."""


def read_envelope(descriptor: int, size: int) -> Envelope:
    """Read and check the archive of a PEF.

    Args:
        descriptor: The open file.
        size: Bytes in it.

    Returns:
        Where the members lie, and the manifest's text.

    Raises:
        PefFormatError: It is another kind of file, cut off, or not in canonical form.
        PefChecksumError: The seal does not fit the manifest and the directory.
        PefVersionError: A newer samba-onnx wrote it.
    """
    seal, tail = _read_tail(descriptor, size)
    offset, directory_bytes = archive.find_directory(tail, size)
    # Bounds of what is read into memory come before it is read.
    if directory_bytes > DIRECTORY_LIMIT:
        raise PefFormatError(f"the archive's directory has {directory_bytes} bytes: too many")
    directory = _read(descriptor, offset, directory_bytes)
    listings = archive.parse_directory(directory)
    slots = archive.place((listing.name, listing.bytes) for listing in listings)
    _check_manifest_slot(slots, offset)
    manifest = _read(descriptor, slots[-1].offset, slots[-1].bytes)
    # The seal is compared before anything in the manifest is believed.
    if archive.seal_of(manifest, directory) != seal:
        raise PefChecksumError("the seal does not fit: the manifest or the directory was changed")
    # Reasons that have names come before the comparison with the canonical form, which refuses all
    # the same but cannot say why.
    _check_listings(listings)
    crcs = tuple(listing.crc for listing in listings)
    _check_canonical(slots, crcs, directory, tail, size)
    for slot, crc in zip(slots, crcs, strict=True):
        header = archive.local_header(slot, crc)
        # Local headers repeat the directory, and programs that read a zip as a stream believe them:
        # both must agree.
        if _read(descriptor, slot.header_offset, len(header)) != header:
            raise PefFormatError(f"the header of member {printable(slot.name)} is damaged")
    if zlib.crc32(manifest) != crcs[-1]:
        raise PefFormatError("the CRC of the manifest is wrong")
    return Envelope(slots, crcs, manifest)


def _read(descriptor: int, offset: int, length: int) -> bytes:
    """Read exactly this range; lengths are bounded by the caller."""
    pieces: list[bytes] = []
    while length > 0:
        # The system may return less than was asked for, at most about 2 GB in one go.
        piece = read_at(descriptor, length, offset)
        if not piece:
            raise PefFormatError("the file became shorter while it was read")
        pieces.append(piece)
        offset, length = offset + len(piece), length - len(piece)
    return b"".join(pieces)


def _read_tail(descriptor: int, size: int) -> tuple[bytes, bytes]:
    """Return the seal and the file's last bytes, having looked at what kind of file it is."""
    start = _read(descriptor, 0, min(4, size))
    if size == 0:
        raise PefFormatError("the file is empty")
    if start != archive.MAGIC:
        raise PefFormatError("it does not begin as a PEF does")
    tail = _read(descriptor, max(0, size - archive.TAIL), min(size, archive.TAIL))
    last = None
    # The last one, since an older PEF inside of a member could hold a seal, too.
    for match in archive.SEAL_PATTERN.finditer(tail):
        last = match
    if last is None:
        raise PefFormatError("it is no PEF but another zip file, or its end is missing")
    # Before the form is looked at, which another version may have changed.
    if int(last.group(1)) != FORMAT_VERSION:
        raise version_error(int(last.group(1)))
    if last.end() != len(tail):
        raise PefFormatError(f"{len(tail) - last.end()} bytes follow the end of the PEF")
    return last.group(0), tail


def _check_manifest_slot(slots: Sequence[archive.MemberSlot], directory_offset: int) -> None:
    if not slots or slots[-1].name != MANIFEST_MEMBER:
        raise PefFormatError(f"the last member is not {MANIFEST_MEMBER}")
    # Nothing may lie between, where no digest would cover it.
    if slots[-1].end != directory_offset:
        raise PefFormatError("the members do not fill the file up to its directory")
    if slots[-1].bytes > MANIFEST_LIMIT:
        raise PefFormatError(f"the manifest has {slots[-1].bytes} bytes: too many")


def _check_listings(listings: Sequence[archive.Listing]) -> None:
    """Refuse members that nobody should ever look at, each for its own reason."""
    for name, count in Counter(listing.name for listing in listings).items():
        if count > 1:
            raise PefFormatError(f"member {printable(name)} occurs {count} times")
    for listing in listings:
        # Nothing is ever extracted here, but other programs would extract it.
        if listing.name.startswith("/") or ".." in listing.name or "\\" in listing.name:
            raise PefFormatError(f"the path of member {printable(listing.name)} leads outside")
        if not listing.stored:
            raise PefFormatError(f"member {printable(listing.name)} is compressed or encrypted")


def _check_canonical(
    slots: Sequence[archive.MemberSlot],
    crcs: Sequence[int],
    directory: bytes,
    tail: bytes,
    size: int,
) -> None:
    expected = archive.central_directory(slots, crcs)
    end = archive.end_of_archive(slots, expected, tail[-len(archive.seal_of(b"", b"")) :])
    if directory != expected:
        raise PefFormatError("the archive's directory is not in canonical form")
    if not tail.endswith(end) or slots[-1].end + len(expected) + len(end) != size:
        raise PefFormatError("the end of the archive is not in canonical form")
