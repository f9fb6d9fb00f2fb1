"""What the linter says of an adapted program, asked by its own command: tools do not import each other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from samba_onnx.safety.leftovers import temporary_folder
from samba_onnx.safety.sandbox import child_environment
from samba_onnx.tools.adapt.adapt_report import LintRemark
from samba_onnx.tools.adapt.adapting import AdaptedFile

_SECONDS = 120.0


def lint_text_of(files: Sequence[AdaptedFile]) -> tuple[LintRemark, ...]:
    """Return what the linter says of the files of a program.

    Args:
        files: The files.

    Returns:
        Its findings; none if it could not be asked.
    """
    remarks: list[LintRemark] = []
    for file in files:
        with temporary_folder("lint") as folder:
            program = Path(folder) / Path(file.path).name
            program.write_text(file.text, encoding="utf-8")
            command = [sys.executable, "-P", "-m", "samba_onnx", "lint", str(program)]
            done = subprocess.run(
                [*command, "--json", "-", "--fail-on", "never"],
                capture_output=True,
                timeout=_SECONDS,
                env=child_environment(),
                check=False,
            )
        if done.returncode == 0:
            remarks += [
                LintRemark(file.path, load["line"], load["rule"], load["severity"], load["message"])
                for load in json.loads(done.stdout)["findings"]
            ]
    return tuple(remarks)
