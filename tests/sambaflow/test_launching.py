"""Programs with ``import sambaflow``, as processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import helper
from sambaflow import samba

if "--fail" in sys.argv:
    raise ValueError("of the program")

from sambaflow.samba.session import SambaSession

print(__name__, sys.argv[1:], isinstance(samba.session, SambaSession), helper.__name__)
sys.exit(3)
"""

FORMS = {
    "module": ["-m", "samba_onnx.sambaflow"],
    "command": ["-m", "samba_onnx.cli", "exec"],
}


def launch(form: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *FORMS[form], *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text("")
    return tmp_path / "program.py"


@pytest.mark.parametrize("form", ["command", pytest.param("module", marks=pytest.mark.slow)])
def test_command_line_status_and_traceback_are_the_programs(form: str, program: Path) -> None:
    pytest.importorskip("torch")
    done = launch(form, program, "run", "--help")
    assert done.returncode == 3, done.stderr
    assert done.stdout.split("\n")[0] == "__main__ ['run', '--help'] True helper"
    assert done.stderr == ""
    failed = launch(form, program, "--fail")
    assert failed.returncode == 1
    assert failed.stderr.endswith("ValueError: of the program\n")
    assert f'File "{program}", line 7' in failed.stderr


@pytest.mark.parametrize("form", FORMS)
def test_no_program_is_wrong_use_in_one_line(form: str, tmp_path: Path) -> None:
    for arguments in ([], [tmp_path / "none.py"], [tmp_path]):
        done = launch(form, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("form", FORMS)
def test_help_is_ours_before_the_program(form: str) -> None:
    done = launch(form, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "PROGRAM" in done.stdout
