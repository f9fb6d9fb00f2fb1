"""A PEF that can be looked at before it appears at its place."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from samba_onnx.errors import OutputError, SambaError
from samba_onnx.safety.files import printable
from samba_onnx.safety.leftovers import temporary_folder


@contextlib.contextmanager
def provisional(output: str | os.PathLike[str]) -> Iterator[Path]:
    """Let a PEF and its log be written elsewhere, and move them to their place on success.

    After any failure, an interrupt included, both places are as they were.

    Args:
        output: Where the PEF shall be; its log goes beside it, as ``.pef.log``. Folders that are
            missing are made on success.

    Yields:
        Where to write the PEF, closed again on success: in a folder of its own, on the same disk.

    Raises:
        OutputError: The place exists and is not a regular file, or cannot be written.
    """
    place = Path(output)
    # On the same disk, so that moving it to its place is one step that cannot stop halfway.
    existing = next(folder for folder in place.absolute().parents if folder.exists())
    try:
        # A link counts as itself: moving the draft to its place would replace it by a file.
        mode = place.lstat().st_mode if os.path.lexists(place) else None
        if mode is not None and not stat.S_ISREG(mode):
            raise OutputError(f"{printable(place)}: is not a regular file", path=place)
        with temporary_folder("pef", existing, place.name) as folder:
            draft = Path(folder) / place.name
            yield draft
            # A PEF in place of another may be read by the same people.
            if mode is not None:
                draft.chmod(stat.S_IMODE(mode))
            place.parent.mkdir(parents=True, exist_ok=True)
            for suffix in (".log", ""):  # the PEF last: where it is, all of it is there
                os.replace(f"{draft}{suffix}", f"{place}{suffix}")
    except OSError as error:
        # Errors of this product about files are OSErrors as well, and say all that there is to say.
        if isinstance(error, SambaError):
            raise
        raise OutputError(
            f"{printable(place)}: cannot write: {error.strerror}", path=place
        ) from error
