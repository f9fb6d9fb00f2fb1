"""Is a model the very one that a PEF was converted from?"""

from __future__ import annotations

from samba_onnx.loading import LoadedModel
from samba_onnx.pef import Pef
from samba_onnx.pef.original_files import OriginalFile
from samba_onnx.safety.files import printable

__all__ = ["other_version"]

_DIGITS = 12
"""So many digits of a SHA-256 tell versions of a model apart; the whole is in the manifest."""


def other_version(pef: Pef, loaded: LoadedModel) -> str:
    """Say that a model is another version of the one that a PEF was converted from.

    All of the model's files are read, unless the PEF does not know what it was converted from: a PEF that
    an earlier version wrote, or one of a model in memory. Names of the model's own file do not matter.

    Args:
        pef: The PEF.
        loaded: The model.

    Returns:
        One sentence with the digests of the first file that differs; empty where none does, and where one
        side has no files.

    Raises:
        ModelFileError: A file of the model is shorter than when it was opened.
    """
    # Digests read all of the files: only if there is something to hold them against.
    recorded = pef.manifest.source.files
    present = loaded.digests() if recorded else ()
    if not recorded or not present:
        return ""
    # The model's own file may have been renamed; its data are looked for by the names in it.
    pairs: list[tuple[str, OriginalFile | None, OriginalFile | None]] = [
        (present[0].name, recorded[0], present[0])
    ]
    before = {file.name: file for file in recorded[1:]}
    now = {file.name: file for file in present[1:]}
    pairs += [(name, before.get(name), now.get(name)) for name in sorted(before | now)]
    for name, old, new in pairs:
        if _digest(old) != _digest(new):
            return (
                f"this is another version of the model that {printable(pef.path.name)} was converted from: "
                f"the SHA-256 of {printable(name)} is {_digest(new)}, and was {_digest(old)} then"
            )
    return ""


def _digest(file: OriginalFile | None) -> str:
    """Return the first digits of a file's digest, or that there is none."""
    return "none (there is no such file)" if file is None else f"{file.sha256[:_DIGITS]}…"
