"""Programs of ``examples/`` as processes of their own, started in both of the documented ways."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_STARTS = itertools.cycle((["-m", "samba_onnx.sambaflow"], ["-m", "samba_onnx.cli", "exec"]))


def launch(program: str, *words: object, folder: Path) -> str:
    """Run a program from a folder; return what it printed, after it has ended well.

    Args:
        program: File name below ``examples/``.
        *words: Its command line.
        folder: Where it runs, and so where it puts its PEF.
    """
    command = [sys.executable, *next(_STARTS), str(ROOT / "examples" / program), *map(str, words)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def make_data(folder: Path, *words: object) -> None:
    """Let ``examples/data.py``, which is plain Python, write into a folder."""
    command = [sys.executable, str(ROOT / "examples" / "data.py"), *map(str, words)]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
