"""The folder that a pipeline writes: what may lie in it, and what stands beside the HDF5 files."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samba_onnx.errors import OutputError, UsageError
from samba_onnx.safety.files import atomic_output
from samba_onnx.safety.system import lock_folder
from samba_onnx.tools.data_prep.hdf5_files import sha256_of
from samba_onnx.tools.data_prep.libraries import library
from samba_onnx.tools.data_prep.run_state import STATE_FILE

_OWN_FOLDERS = ("splits", "test_files", "tokenizer", "sha256", "json_error_log", "buckets")
_OWN_FILES = ("metadata.yaml", "category_to_id.json", "logs.log", STATE_FILE)
_OWN_DATASETS = re.compile(r"(train|dev)_\d+_of_\d+\.hdf5")


@dataclass(frozen=True)
class OutputFolder:
    """The places in an output folder."""

    path: Path

    @property
    def state(self) -> Path:
        """The progress of a run."""
        return self.path / STATE_FILE

    @property
    def splits(self) -> Path:
        """The text of every file."""
        return self.path / "splits"

    @property
    def tests(self) -> Path:
        """The text that is kept for tests."""
        return self.path / "test_files"

    @property
    def tokenizer(self) -> Path:
        """A copy of the tokenizer."""
        return self.path / "tokenizer"

    @property
    def skipped(self) -> Path:
        """Lines that could not be read."""
        return self.path / "json_error_log"

    @property
    def buckets(self) -> Path:
        """Lines on their way through a shuffle."""
        return self.path / "buckets"

    @property
    def log(self) -> Path:
        """What was done, and when."""
        return self.path / "logs.log"

    def text(self, kind: str, name: str, suffix: str) -> Path:
        """Return where the text of a file is.

        Args:
            kind: ``train``, ``dev`` or ``test``.
            name: The file's name, without suffix.
            suffix: ``.jsonl`` or ``.txt``.
        """
        return (self.tests if kind == "test" else self.splits) / f"{name}{suffix}"

    def hdf5(self, name: str) -> Path:
        """Return where the sequences of a file are.

        Args:
            name: The file's name, without suffix.
        """
        return self.path / f"{name}.hdf5"

    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
        return not any(self.path.iterdir())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of the folder, which is made if it is missing.

        Raises:
            UsageError: Another run is writing there.
            OutputError: The folder cannot be made.
        """
        with contextlib.ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock_folder(self.path))
            except BlockingIOError:
                raise UsageError(
                    f"{self.path}: another run is writing there: wait for it"
                ) from None
            except OSError as error:
                message = f"{self.path}: cannot make this folder: {error.strerror}"
                raise OutputError(message, path=self.path) from None
            yield

    def remove_temporary(self) -> None:
        """Remove what processes have left that were killed while they wrote, in folders as well."""
        # Listed first: the folder changes while it is walked through.
        for item in list(self.path.rglob(".*.tmp")):
            if item.is_dir() and not item.is_symlink():
                shutil.rmtree(item, ignore_errors=True)
            else:
                item.unlink(missing_ok=True)

    def clear(self, files: Sequence[Path], log: Path | None = None) -> None:
        """Remove what an earlier run has left, and nothing else.

        Args:
            files: The input, which must not be among it.
            log: A log of another name, which may lie there and stays.

        Raises:
            UsageError: The input is among it, or the folder holds what no run leaves.
        """
        kept = None if log is None else log.resolve()
        items = [item for item in self.path.iterdir() if item.resolve() != kept]
        # A folder that was named by mistake keeps what is in it.
        foreign = [item.name for item in items if not _is_own(item)]
        if foreign:
            raise UsageError(
                f"{self.path}: it has files that are not of a dataset, as {sorted(foreign)[0]}, and "
                "is not overwritten: give another --output_path"
            )
        own = [item.resolve() for item in items]
        for path in files:
            # Resolved, as links may lead into the folder.
            if any(path.resolve().is_relative_to(item) for item in own):
                raise UsageError(
                    f"{path}: the input would be overwritten: give another --output_path"
                )
        for item in items:
            shutil.rmtree(item) if item.is_dir() else item.unlink()


def _is_own(item: Path) -> bool:
    temporary = item.name.startswith(".") and item.name.endswith(".tmp")
    if item.is_dir() and not item.is_symlink():
        return item.name in _OWN_FOLDERS or temporary
    return item.name in _OWN_FILES or bool(_OWN_DATASETS.fullmatch(item.name)) or temporary


def write_yaml(path: Path, content: dict[str, Any]) -> None:
    """Write a mapping as YAML, in whole or not at all; sorted by name, as the documented tool has it.

    Args:
        path: The file.
        content: Plain values by name.

    Raises:
        OutputError: It cannot be written.
    """
    with atomic_output(path) as file:
        file.write(library("yaml").safe_dump(content).encode())


def write_json(path: Path, content: Any) -> None:
    """Write a value as JSON, in whole or not at all.

    Args:
        path: The file.
        content: A value that JSON has.

    Raises:
        OutputError: It cannot be written.
    """
    with atomic_output(path) as file:
        file.write(json.dumps(content, indent=1).encode())


def write_checksums(folder: OutputFolder) -> None:
    """Write SHA-256, size and time of every file of a finished dataset.

    The log, which may still grow, is not among them.

    Args:
        folder: The folder.

    Raises:
        OutputError: The file cannot be written.
    """
    target = folder.path / "sha256" / "files_metadata.json"
    skipped = {folder.log, folder.state, target}
    files = (path for path in sorted(folder.path.rglob("*")) if path.is_file())
    write_json(
        target,
        {
            path.relative_to(folder.path).as_posix(): {
                "sha256": sha256_of(path),
                "size": path.stat().st_size,
                "modified_time": path.stat().st_mtime,
            }
            for path in files
            if path not in skipped
        },
    )
