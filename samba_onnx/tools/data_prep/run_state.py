"""The progress of a run in a file beside it, so that an interrupted run goes on where it was."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from samba_onnx.errors import DataError
from samba_onnx.safety.files import atomic_output
from samba_onnx.tools.data_prep.file_preparation import FileResult
from samba_onnx.tools.data_prep.hdf5_files import sha256_of
from samba_onnx.tools.data_prep.metrics import Metrics

STATE_FILE = ".data_prep_state.json"
"""Stands in the output folder while a run has not ended."""


@dataclass
class RunState:
    """The progress of a run."""

    path: Path
    """The state's file."""
    settings: dict[str, Any]
    """All that the result depends on; a run goes on only with the same."""
    splits: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the text of every file, by its name; empty until all are written."""
    results: dict[str, FileResult] = field(default_factory=dict)
    """What became of each file that is finished, by its name."""

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a state.

        Args:
            path: Its file.

        Returns:
            None if there is no such file.

        Raises:
            DataError: It has another content.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            results = {name: _result(item) for name, item in content["results"].items()}
            return cls(path, content["settings"], content["splits"], results)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path}: this state of an interrupted run cannot be read ({error!r}): start anew "
                "with --overwrite_output_path",
                path=path,
            ) from None

    def write(self) -> None:
        """Replace the file, in whole or not at all.

        Raises:
            OutputError: It cannot be written.
        """
        content = {
            "settings": self.settings,
            "splits": self.splits,
            "results": {name: dataclasses.asdict(item) for name, item in self.results.items()},
        }
        with atomic_output(self.path) as file:
            file.write(json.dumps(content, indent=1).encode())

    def finished(self, name: str, target: Path) -> bool:
        """Whether a file is finished, and is what it was then.

        Args:
            name: The file's name, without suffix.
            target: Where the HDF5 file is.
        """
        result = self.results.get(name)
        return result is not None and target.is_file() and sha256_of(target) == result.sha256

    def difference(self, settings: dict[str, Any]) -> str:
        """Return how the settings of this run differ from others; empty if they do not.

        Args:
            settings: What the user asks for now.
        """
        # As they are after a way through JSON, to which a tuple is a list.
        settings = json.loads(json.dumps(settings))
        for name in sorted(self.settings.keys() | settings.keys()):
            before, now = self.settings.get(name), settings.get(name)
            if before != now:
                return f"{name} was {before}, and is now {now}"
        return ""


def _result(content: dict[str, Any]) -> FileResult:
    skipped = tuple((int(number), str(reason)) for number, reason in content["skipped"])
    return FileResult(Metrics(**content["metrics"]), content["sha256"], skipped)
