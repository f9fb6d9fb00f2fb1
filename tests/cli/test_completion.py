"""Shells ask how a command line may go on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from samba_onnx.cli.application import COMPLETION_VARIABLE
from tests.cli.conftest import SambaPort


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("samba-port conv", ["convert"]),
        ("samba-port convert --max", ["--max-fallbacks", "--max-transfer-bytes"]),
        ("samba-port no-such-command", []),
    ],
)
def test_bash(
    samba_port: SambaPort, monkeypatch: pytest.MonkeyPatch, line: str, answers: list[str]
) -> None:
    monkeypatch.setenv(COMPLETION_VARIABLE, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    result = samba_port()
    assert (result.status, result.err) == (0, "")
    assert result.out.split() == answers


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_the_variable(
    samba_port: SambaPort, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    monkeypatch.setenv(COMPLETION_VARIABLE, f"source_{shell}")
    result = samba_port()
    assert (result.status, result.err) == (0, "")
    assert f"{COMPLETION_VARIABLE}=complete_{shell}" in result.out


def test_the_package_is_a_program_that_completes() -> None:
    asked = {
        COMPLETION_VARIABLE: "complete_bash",
        "COMP_WORDS": "samba-port ver",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "samba_onnx"],
        env=os.environ | asked, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout.split(), done.stderr) == (["verify"], "")
