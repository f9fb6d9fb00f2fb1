"""Hold a member's content against its SHA-256 and the CRC that zip demands."""

from __future__ import annotations

import concurrent.futures
import hashlib
import threading
import zlib
from collections.abc import Callable

from samba_onnx.errors import ModelFileError, PefChecksumError, PefFormatError
from samba_onnx.pef.archive import MemberSlot
from samba_onnx.pef.sources import file_chunks
from samba_onnx.safety.files import printable

__all__ = ["check_content"]


def check_content(
    descriptor: int,
    slot: MemberSlot,
    sha256: str,
    crc: int | None,
    stop: threading.Event,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Read a member and compare both digests.

    Args:
        descriptor: The open PEF.
        slot: Where the member lies.
        sha256: What the manifest says, in hexadecimal.
        crc: What the archive's directory says; None to leave it unchecked.
        stop: Set by another thread to give up.
        progress: Told how many bytes of how many are done.

    Raises:
        PefChecksumError: The content differs from what was written.
        PefFormatError: The CRC is wrong although the content is right, or the file ends early.
        concurrent.futures.CancelledError: ``stop`` was set.
    """
    sha, running, done = hashlib.sha256(), 0, 0
    try:
        for chunk in file_chunks(descriptor, slot.offset, slot.bytes):
            if stop.is_set():
                raise concurrent.futures.CancelledError
            sha.update(chunk)
            # CRC costs a third of the time of the digest, and is of use to other zip readers only.
            running = running if crc is None else zlib.crc32(chunk, running)
            done += len(chunk)
            if progress is not None:
                progress(done, slot.bytes)
    # The file ended early while it was open: what is wrong then is the PEF.
    except ModelFileError as error:
        raise PefFormatError(str(error)) from None
    # SHA-256 first: when both differ, the content was changed, and not its CRC.
    if sha.hexdigest() != sha256:
        raise PefChecksumError(f"member {printable(slot.name)} was changed: its SHA-256 differs")
    if crc is not None and running != crc:
        raise PefFormatError(f"the CRC of member {printable(slot.name)} is wrong")
