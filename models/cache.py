"""A cache of exported models in ``.cache/models/`` of the checkout.

An entry is keyed by everything that shapes its content: the model's source, the shared sources and
the versions of the libraries that export it. Any number of processes may ask for the same entry at
once: one exports it, in a process of its own, and the others wait. A hit imports no torch.
"""

import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models import find
from models.example import Variant
from samba_onnx.errors import ExecutionError

__all__ = ["CACHE", "cached_onnx"]

_ROOT = Path(__file__).resolve().parent.parent
CACHE = _ROOT / ".cache" / "models"
"""The folder that holds the entries, one subfolder each."""

_SHARED = ("example.py", "export.py", "initialization.py")
_LIBRARIES = ("torch", "onnx", "onnx-ir", "onnxscript", "transformers")
_STALE_SECONDS = 7 * 24 * 3600


def cached_onnx(
    name: str,
    variant: Variant = "tiny",
    *,
    dynamic: bool = False,
    raw: bool = False,
    here: bool = False,
    folder: Path = CACHE,
) -> Path:
    """Give the ONNX file of a model, exporting it first if it is not in the cache.

    Args:
        name: A key of `models.MODELS`.
        variant: ``tiny``, ``full`` or, where the model has it, ``large``.
        dynamic: Whether the model's dynamic axes have a name instead of a size.
        raw: Whether the exporter leaves the graph as it was traced.
        here: Whether to export in this process, which then loads torch, and not in one of its own.
        folder: The folder that holds the entries.

    Returns:
        The path of the file; large weights lie in a file beside it. Do not write there.

    Raises:
        UsageError: If there is no such model or variant.
        ExecutionError: If the export fails.
    """
    find(name).check(variant)
    stem = f"{name}-{variant}" + "-dynamic" * dynamic + "-raw" * raw
    entry = folder / f"{stem}-{_key(name)}"
    path = entry / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f"{entry.name}.lock"):
            if not path.exists():
                _remove_stale(folder, stem)
                with _partial(entry) as partial:
                    export = _export_here if here else _export_in_child
                    export(name, variant, partial / path.name, dynamic=dynamic, raw=raw)
    os.utime(entry)
    return path


def _key(name: str) -> str:
    """A hash of the sources and library versions that the exported file depends on."""
    own = find(name).file.removeprefix("models.") + ".py"
    digest = hashlib.sha256()
    for file in (own, *_SHARED):
        digest.update((_ROOT / "models" / file).read_bytes())
    for library in _LIBRARIES:
        digest.update(f"{library}={importlib.metadata.version(library)};".encode())
    return digest.hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; the system lets it go even when the process is killed."""
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _partial(entry: Path) -> Iterator[Path]:
    """Give a folder beside the entry that becomes the entry, unless something fails."""
    partial = entry.with_name(f"partial-{entry.name}")
    shutil.rmtree(partial, ignore_errors=True)  # what a killed process has left
    partial.mkdir()
    try:
        yield partial
        partial.rename(entry)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _export_here(name: str, variant: Variant, path: Path, *, dynamic: bool, raw: bool) -> None:
    from models.export import export_onnx

    export_onnx(name, variant, path, dynamic=dynamic, optimize=not raw)


def _export_in_child(name: str, variant: Variant, path: Path, *, dynamic: bool, raw: bool) -> None:
    command = [sys.executable, "-m", "models", name, str(path), "--variant", variant]
    command += ["--dynamic"] * dynamic + ["--raw"] * raw
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise ExecutionError(f"{name} ({variant}) cannot be exported: {lines[-1]}")


def _remove_stale(folder: Path, stem: str) -> None:
    """Remove entries of the same model and variant that nobody has used for a week."""
    for old in folder.glob(f"{stem}-*"):
        key = old.name.removeprefix(f"{stem}-")
        if old.is_dir() and "-" not in key and time.time() - old.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
