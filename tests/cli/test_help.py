"""Help, version, and what they cost."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import samba_onnx
from samba_onnx.cli.application import build_application
from samba_onnx.tools import Tool, find_tools
from tests.cli.conftest import SambaPort

TOOLS = find_tools()
PARTS = [(tool.name, part) for tool in TOOLS.values() for part in tool.commands]
"""The commands of those that have some of their own."""
COMMON = ("--json", "--quiet", "--verbose", "--help")
HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "rich", "torch")


@pytest.mark.parametrize("markup", [None, "rich"])
@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_every_command_shows_examples_and_common_options(tool: Tool, markup: str | None) -> None:
    output = help_of(tool.name, markup=markup)
    assert "Examples:" in output
    # The options of another program, or of commands of its own, are shown where they are.
    assert tool.passes_on or tool.commands or all(option in output for option in COMMON)


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_every_command_of_a_command_shows_the_same(name: str, part: str) -> None:
    output = help_of(name, part)
    assert all(option in output for option in COMMON)


def help_of(*words: str, markup: str | None = None) -> str:
    """Return the help of a command, in which there are at least three examples of it."""
    application = build_application(markup)  # type: ignore[arg-type]
    result = CliRunner().invoke(application, [*words, "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    lines = [line.strip(" │") for line in result.output.splitlines()]
    assert sum(line.startswith(f"samba-port {' '.join(words)}") for line in lines) >= 3
    return result.output


def test_help_lists_every_command_with_a_whole_sentence(samba_port: SambaPort) -> None:
    result = samba_port("--help")
    assert (result.status, result.err) == (0, "")
    rows = [line.split() for line in result.out.splitlines()]
    for command in TOOLS:
        (row,) = (row for row in rows if row[:1] == [command])
        assert row[-1].endswith("."), row
        assert not row[-1].endswith("..."), row


def test_no_arguments_is_wrong_usage_with_help(samba_port: SambaPort) -> None:
    result = samba_port()
    assert (result.status, result.out) == (2, "")
    assert "Port a model:" in result.err


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
