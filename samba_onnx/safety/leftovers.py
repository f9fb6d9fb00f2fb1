"""What a process that was killed leaves behind: temporary files and folders, which the next one removes.

Whoever makes one holds a lock on it for as long as it is needed, and the system takes the lock away with the
process, however that ends. So what can be locked belongs to nobody, on this machine or on another one that
shares the folder; ids of processes would mean others in another container.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from samba_onnx.safety import system

__all__ = ["claimed", "remove_leftovers", "temporary_folder", "temporary_name"]

PREFIX: Final = "samba-"
"""Begins the names of folders among those of other programs."""
_BESIDE: Final = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
"""Names of what is made beside a result."""
_AMONG_OTHERS: Final = re.compile(rf"{PREFIX}[a-z]+-[0-9a-f]{{12}}")
"""Names of folders where all programs have theirs."""
_SECONDS: Final = 60.0
"""How old something is at least before it is taken for a leftover: there is a moment between making and locking."""

_looked: set[tuple[int, str]] = set()
"""Folders that were looked through, by process: once is enough."""


def temporary_name(name: str) -> str:
    """Return a name for what will become a file of this name, unlike any other.

    Args:
        name: What the result is called.
    """
    return f".{name[:100]}.{secrets.token_hex(6)}.tmp"


@contextlib.contextmanager
def claimed(descriptor: int) -> Iterator[None]:
    """Let no other process take something for a leftover meanwhile.

    Args:
        descriptor: The open file or folder; it may be closed meanwhile.
    """
    # A duplicate has the same lock, which ends with the last one that is closed.
    held = os.dup(descriptor)
    try:
        system.lock(held)
        yield
    finally:
        os.close(held)


@contextlib.contextmanager
def temporary_folder(
    purpose: str, parent: str | os.PathLike[str] | None = None, name: str = ""
) -> Iterator[Path]:
    """Make a folder that is gone afterwards, with all in it, and at the latest when another one is made there.

    Args:
        purpose: A word for its name.
        parent: Where; None for the system's place for temporary files.
        name: With a parent, the name of the result that is made in it.

    Raises:
        OSError: It cannot be made.
    """
    place = Path(tempfile.gettempdir() if parent is None else parent)
    remove_leftovers(place)
    own = temporary_name(name) if name else f"{PREFIX}{purpose}-{secrets.token_hex(6)}"
    folder = place / own
    # Readable for this user alone, for inputs and weights lie in it.
    folder.mkdir(mode=0o700)
    try:
        with _claimed_folder(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _claimed_folder(folder: Path) -> Iterator[None]:
    if not system.has_folder_descriptors():
        yield
        return
    descriptor = system.open_folder(folder)
    try:
        with claimed(descriptor):
            yield
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove what processes have left in a folder that are no more; once in a process.

    Only what has a name of ours goes, belongs to this user, is no link and has no second name, has been there
    for a minute, and is locked by nobody. What cannot be removed stays, without a word.

    Args:
        folder: Where results are written, or where all programs have temporary files.
    """
    # By process: a forked child inherits the set, and still looks once itself.
    key = os.getpid(), os.path.abspath(folder)
    if key in _looked or not system.has_folder_descriptors():
        return
    _looked.add(key)
    with contextlib.suppress(OSError):
        names = [
            name
            for name in os.listdir(folder)
            if _BESIDE.fullmatch(name) or _AMONG_OTHERS.fullmatch(name)
        ]
        parent = system.open_folder(folder)
        try:
            for name in names:
                with contextlib.suppress(OSError):
                    _remove(name, parent)
        finally:
            os.close(parent)


def _remove(name: str, parent: int) -> None:
    """Remove what has this name in an open folder, if it is a leftover."""
    # Relative to the open folder, and without following links: what is removed is what was looked
    # at.
    before = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if not _may_go(before):
        return
    descriptor = os.open(name, system.READ_NO_LINK, dir_fd=parent)
    try:
        # It may be another one by now.
        if _may_go(os.fstat(descriptor)) and system.lock(descriptor):
            if stat.S_ISDIR(before.st_mode):
                shutil.rmtree(name, dir_fd=parent)
            else:
                os.unlink(name, dir_fd=parent)
    finally:
        os.close(descriptor)


def _may_go(status: os.stat_result) -> bool:
    """Tell whether it is this user's, and old enough; a file that has another name may be needed there."""
    plain = stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
    return plain and status.st_uid == os.geteuid() and time.time() - status.st_mtime > _SECONDS
