"""Open what was meant and nothing else; replace a result in whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, Final

from samba_onnx.errors import ModelFileError, OutputError, SambaError
from samba_onnx.safety import system
from samba_onnx.safety.leftovers import claimed, remove_leftovers, temporary_name

__all__ = [
    "atomic_output",
    "mapped",
    "open_beneath",
    "open_regular",
    "printable",
    "read_document",
    "restored_on_failure",
]

DOCUMENT_LIMIT: Final = 256 << 20
"""Bytes of a file that is read as a whole because a person could have written it."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a symbolic link"),
)


def printable(text: object, limit: int = 120) -> str:
    """Return ``text`` on one line without control characters, shortened to ``limit`` characters.

    Names inside a file from outside can hold line breaks, terminal sequences or megabytes; every
    message that repeats one passes it through here.
    """
    # Cut before it is looked at: a name may have megabytes.
    line = str(text)[: limit + 1]
    if not line.isprintable():
        line = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def open_regular(
    path: str | os.PathLike[str],
    *,
    what: str = "model",
    error: type[SambaError] = ModelFileError,
) -> BinaryIO:
    """Open a regular file for reading, without ever waiting for one.

    Args:
        path: The file; symbolic links are followed, because the user named it.
        what: The word for the file in error messages.
        error: The class to raise.

    Returns:
        The open file, at its start.

    Raises:
        SambaError: As ``error``: the path does not exist, is not readable, or leads to a folder,
            pipe, socket or device.
    """
    name = printable(os.fspath(path))
    try:
        # Before opening: to open a pipe waits for its writer, and to open a device can act on it.
        _require_regular(os.stat(path), name, what, error)
        descriptor = os.open(path, system.READ)
    except SambaError as refusal:  # some of ours are a ValueError or an OSError as well
        refusal.path = os.fspath(path)
        raise
    except ValueError:
        raise error(
            f"{name}: the path of {_one(what)} cannot hold a NUL character", path=path
        ) from None
    except OSError as reason:
        message = f"{name}: cannot open this {what}: {_because(reason)}"
        raise error(message, path=path) from None
    return _as_file(descriptor, name, what, error)


def mapped(file: IO[bytes]) -> memoryview:
    """Return the content of an open file without reading it: pages are read when they are looked at.

    Args:
        file: A regular file; it may be closed afterwards.
    """
    if not os.fstat(file.fileno()).st_size:
        return memoryview(b"")  # of which no system makes a map
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_document(
    path: str | os.PathLike[str],
    *,
    what: str,
    error: type[SambaError] = ModelFileError,
) -> bytes:
    """Read a whole file of text, unless it is larger than any that people write.

    Args:
        path: The file.
        what: The word for the file in error messages.
        error: The class to raise.

    Raises:
        SambaError: As ``error``: it is no readable regular file, or larger than ``DOCUMENT_LIMIT``.
    """
    with open_regular(path, what=what, error=error) as file:
        content = file.read(DOCUMENT_LIMIT + 1)
    if len(content) > DOCUMENT_LIMIT:
        raise error(
            f"{printable(os.fspath(path))}: this {what} takes more than {DOCUMENT_LIMIT >> 20} MiB",
            path=path,
        )
    return content


def open_beneath(folder: str | os.PathLike[str], location: str, *, what: str) -> BinaryIO:
    """Open a regular file that a model names, strictly inside the model's folder.

    No component may be a symbolic link, so that the answer cannot be redirected, and the file may
    have no second hard link, because that may be someone else's file under a harmless name.

    Args:
        folder: The folder that holds the model.
        location: A relative path with ``/`` between components, as the model states it.
        what: The word for the file in error messages.

    Returns:
        The open file, at its start.

    Raises:
        ModelFileError: The location is not a plain relative path, or leads to anything but a
            readable regular file inside ``folder``.
    """
    name = printable(location)
    parts = _plain_components(location, what)
    descend = _descend if system.has_folder_descriptors() else _descend_by_path
    try:
        descriptor = descend(folder, parts, what)
    except OSError as reason:
        if isinstance(reason, SambaError):
            raise
        raise ModelFileError(
            f"{name}: cannot open this {what} in {printable(folder)}: {_because(reason)}"
        ) from None
    file = _as_file(descriptor, name, what, ModelFileError)
    # After opening, so that it is the opened file that was counted.
    if os.fstat(file.fileno()).st_nlink > 1:
        file.close()
        raise ModelFileError(
            f"{name}: this {what} has more than one hard link and may be a file from elsewhere: "
            "copy it, so that the model's folder has a file of its own"
        )
    return file


def _descend(folder: str | os.PathLike[str], parts: list[str], what: str) -> int:
    """Open a file from folder to folder: whatever is exchanged meanwhile, it lies beneath the first one."""
    try:
        parent = system.open_folder(folder)
    except OSError as reason:
        raise _cannot_open_folder(folder, reason) from None
    try:
        for part in parts[:-1]:
            child = system.open_folder(part, parent)
            os.close(parent)
            parent = child
        # A look before opening: to open a pipe would wait.
        status = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
        _require_regular(status, printable("/".join(parts)), what, ModelFileError)
        return os.open(parts[-1], system.READ_NO_LINK, dir_fd=parent)
    finally:
        os.close(parent)


def _descend_by_path(folder: str | os.PathLike[str], parts: list[str], what: str) -> int:
    """Open a file by its path, having looked at each part of it; for systems without open folders.

    A folder that is exchanged for a link between the look and the opening is not noticed.
    """
    system.note_missing_protections()
    place = Path(folder)
    try:
        place.stat()
    except OSError as reason:
        raise _cannot_open_folder(folder, reason) from None
    for part in parts[:-1]:
        place /= part
        status = place.lstat()
        if not stat.S_ISDIR(status.st_mode) or system.is_redirected(status):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    place /= parts[-1]
    status = place.lstat()
    if system.is_redirected(status):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    _require_regular(status, printable("/".join(parts)), what, ModelFileError)
    return os.open(place, system.READ_NO_LINK)


def _cannot_open_folder(folder: object, reason: OSError) -> ModelFileError:
    return ModelFileError(f"{printable(folder)}: cannot open this folder: {_because(reason)}")


def _plain_components(location: str, what: str) -> list[str]:
    """Split a location into components, refusing all that is not a plain relative path."""
    name = printable(location)
    if not location:
        raise ModelFileError(f"the location of {_one(what)} is empty: the model must name a file")
    if "\0" in location or "\\" in location:
        raise ModelFileError(f"{name}: the location of {_one(what)} cannot hold NUL or backslash")
    if location.startswith("/"):
        raise ModelFileError(
            f"{name}: the location of {_one(what)} must be relative to the model's folder"
        )
    if ":" in location and system.HAS_DRIVES:
        raise ModelFileError(f"{name}: the location of {_one(what)} cannot hold a colon here")
    parts = [part for part in location.split("/") if part not in {"", "."}]
    if ".." in parts or not parts or location.endswith("/"):
        raise ModelFileError(
            f"{name}: the location of {_one(what)} must stay inside the model's folder"
        )
    return parts


def _require_regular(status: os.stat_result, name: str, what: str, error: type[SambaError]) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((text for test, text in _KINDS if test(status.st_mode)), "no regular file")
        raise error(f"{name}: {_one(what)} must be a regular file, but this is {kind}")


def _as_file(descriptor: int, name: str, what: str, error: type[SambaError]) -> BinaryIO:
    """Wrap a descriptor, having looked again: the path may have changed since the first look."""
    try:
        _require_regular(os.fstat(descriptor), name, what, error)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _because(reason: OSError) -> str:
    """Return the system's reason in words."""
    if reason.errno in {errno.ELOOP, errno.ENOTDIR}:
        return "a part of the path is a symbolic link or no folder"
    return (reason.strerror or str(reason)).lower()


@contextlib.contextmanager
def atomic_output(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Write a file that appears in whole or not at all.

    Content goes to a temporary file in the same folder; on success it is flushed to the disk and
    renamed onto ``path``, and the folder is flushed too. After any failure, an interrupt included,
    ``path`` is as it was and the temporary file is gone. Missing parent folders are made, and
    removed again on failure.

    Args:
        path: Where the file shall be.

    Yields:
        The temporary file, open for reading and writing; its ``name`` is its path.

    Raises:
        OutputError: The destination exists and is not a regular file, or writing failed.
    """
    try:
        target = Path(path)
        mode = _mode_of_destination(target)
        folders = _make_folders(target.parent)
    except ValueError:
        raise OutputError(f"{printable(path)}: a path cannot hold a NUL character") from None
    except OSError as reason:
        raise _cannot_write(path, reason) from None
    remove_leftovers(target.parent)
    temporary = target.parent / temporary_name(target.name)
    try:
        with contextlib.ExitStack() as stack:
            with open(temporary, "w+b", opener=_new_file) as file:
                stack.enter_context(claimed(file.fileno()))
                if mode is not None:
                    system.permit(file.fileno(), temporary, mode)
                yield file
                file.flush()
                # Before the rename: the name must not lead to content that is lost with the power.
                os.fsync(file.fileno())
            # Once more, for the place may be another kind of file by now.
            _mode_of_destination(target)
            os.replace(temporary, target)
        _flush_folder(target.parent)
    except BaseException as reason:
        with contextlib.suppress(OSError):
            temporary.unlink()
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(reason, OSError) and not isinstance(reason, SambaError):
            raise _cannot_write(path, reason) from reason
        raise


@contextlib.contextmanager
def restored_on_failure(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put back what a file holds if what is done meanwhile fails, an interrupt included.

    For a file that may only change together with another: it is replaced just before the other is.

    Args:
        path: Where the file is, or may be made meanwhile.

    Raises:
        OutputError: The place exists and is not a regular file, or cannot be written beside.
    """
    target = Path(path)
    kept = target.parent / f".{target.name[:100]}.{secrets.token_hex(6)}.old"
    try:
        existed = _mode_of_destination(target) is not None
        if existed:
            shutil.copy2(target, kept)
    except ValueError:
        raise OutputError(f"{printable(path)}: a path cannot hold a NUL character") from None
    except OSError as reason:
        raise _cannot_write(path, reason) from None
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            if existed:
                os.replace(kept, target)
            else:
                target.unlink()
        raise
    finally:
        with contextlib.suppress(OSError):
            kept.unlink()


def _new_file(path: str, _flags: int) -> int:
    """Open a file that must not exist yet."""
    return os.open(path, system.NEW_FILE, 0o666)


def _mode_of_destination(target: Path) -> int | None:
    """Return the permissions of an existing regular file at ``target``; None when there is none."""
    try:
        status = target.lstat()
    except FileNotFoundError:
        return None
    _require_regular(status, printable(target), "result", OutputError)
    return stat.S_IMODE(status.st_mode)


def _make_folders(folder: Path) -> list[Path]:
    """Make the missing folders down to ``folder``; return them, innermost first."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folders: list[Path] = []
    for parent in reversed(missing):
        parent.mkdir(exist_ok=True)
        folders.insert(0, parent)
    return folders


def _flush_folder(folder: Path) -> None:
    """Make the rename itself durable, where the file system can."""
    if not system.has_folder_descriptors():
        return
    descriptor = system.open_folder(folder)
    try:
        os.fsync(descriptor)
    except OSError as reason:
        # Some file systems cannot flush folders, and say so in these ways.
        if reason.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EACCES}:
            raise
    finally:
        os.close(descriptor)


def _cannot_write(path: object, reason: OSError) -> OutputError:
    if isinstance(reason, OutputError):
        return reason
    return OutputError(f"{printable(path)}: cannot write: {_because(reason)}")


def _one(what: str) -> str:
    """Return a noun with its article: a PEF, an external data file."""
    return f"{'an' if what[0] in 'aeiou' else 'a'} {what}"
