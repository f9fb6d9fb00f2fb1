"""Help, version, and what they cost."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import samba_onnx
from samba_onnx.cli.application import build_application
from samba_onnx.cli.failures import COMMANDS
from tests.cli.conftest import SambaPort

OTHERS = ("exec", "data-prep")
"""Commands whose options are those of another program, or of commands of their own."""
DATA = ("pipeline", "data_prep", "decode")
"""The commands of ``data-prep``."""
HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "rich", "torch")


@pytest.mark.parametrize("markup", [None, "rich"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_examples_and_common_options(command: str, markup: str | None) -> None:
    application = build_application(markup)  # type: ignore[arg-type]
    result = CliRunner().invoke(application, [command, "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    assert "Examples:" in result.output
    lines = [line.strip(" │") for line in result.output.splitlines()]
    assert sum(line.startswith(f"samba-port {command}") for line in lines) >= 3
    for option in ("--json", "--quiet", "--verbose", "--help"):
        assert option in result.output or command in OTHERS


def test_the_commands_are_those_of_the_application() -> None:
    application = build_application()
    commands = (*application.registered_commands, *application.registered_groups)
    assert (
        tuple(command.name or command.typer_instance.info.name for command in commands) == COMMANDS
    )


@pytest.mark.parametrize("command", DATA)
def test_commands_of_data_prep_show_examples_and_common_options(command: str) -> None:
    words = ["data-prep", command, "--help"]
    result = CliRunner().invoke(build_application(), words, env={"COLUMNS": "100"})
    assert result.exit_code == 0
    lines = [line.strip() for line in result.output.splitlines()]
    assert sum(line.startswith(f"samba-port data-prep {command}") for line in lines) >= 3
    for option in ("--json", "--quiet", "--verbose", "--help", "--pretrained_tokenizer"):
        assert option in result.output


def test_help_lists_every_command_with_a_whole_sentence(samba_port: SambaPort) -> None:
    result = samba_port("--help")
    assert (result.status, result.err) == (0, "")
    rows = [line.split() for line in result.out.splitlines()]
    for command in COMMANDS:
        (row,) = (row for row in rows if row[:1] == [command])
        assert row[-1].endswith("."), row
        assert not row[-1].endswith("..."), row


def test_no_arguments_is_wrong_usage_with_help(samba_port: SambaPort) -> None:
    result = samba_port()
    assert (result.status, result.out) == (2, "")
    assert "Commands:" in result.err


def test_version(samba_port: SambaPort) -> None:
    result = samba_port("--version")
    assert (result.status, result.out) == (0, f"samba-port {samba_onnx.__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from samba_onnx.cli import main\n"
        f"sys.argv = ['samba-port', *{arguments!r}]\n"
        "status = main()\n"
        f"print(status, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stderr == "0 []\n"
