"""What the linter says of an adapted program, asked by its own command: tools do not import each other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from samba_onnx.safety.leftovers import temporary_folder
from samba_onnx.safety.sandbox import child_environment
from samba_onnx.tools.adapt.adapt_report import LintRemark

_SECONDS = 120.0


def lint_text_of(text: str, name: str) -> tuple[LintRemark, ...]:
    """Return what the linter says of a program.

    Args:
        text: The program.
        name: Its name.

    Returns:
        Its findings; none if it could not be asked.
    """
    with temporary_folder("lint") as folder:
        program = Path(folder) / Path(name).name
        program.write_text(text, encoding="utf-8")
        command = [sys.executable, "-P", "-m", "samba_onnx", "lint", str(program)]
        done = subprocess.run(
            [*command, "--json", "-", "--fail-on", "never"],
            capture_output=True,
            timeout=_SECONDS,
            env=child_environment(),
            check=False,
        )
    if done.returncode != 0:
        return ()
    findings = json.loads(done.stdout)["findings"]
    return tuple(
        LintRemark(one["line"], one["rule"], one["severity"], one["message"]) for one in findings
    )
