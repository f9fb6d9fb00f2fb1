"""The commands of ``examples/README.md``, as they are printed there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.examples.launching import ROOT

TEXT = (ROOT / "examples" / "README.md").read_text()
DATA = "Data"
"""The section whose files those of all other sections read."""

_PROGRAMS = {
    "python": [sys.executable],
    "samba-port": [sys.executable, "-m", "samba_onnx.cli"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run"],
}


def sections() -> dict[str, list[str]]:
    """Return the commands of every section that has some, by its title."""
    found = {}
    for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        blocks = re.findall(r"```sh\n(.*?)```", body, re.DOTALL)
        if blocks:
            found[title] = "".join(blocks).replace("\\\n", "").splitlines()
    return found


def run_section(title: str, folder: Path) -> list[str]:
    """Run the commands of a section from a folder, each in a process of its own.

    Args:
        title: Title of the section.
        folder: It becomes what the top of the checkout is to the reader.

    Returns:
        What each command printed.
    """
    for name in ("examples", "models"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    return [_run(command, folder) for command in sections()[title]]


def _run(command: str, folder: Path) -> str:
    program, *words = shlex.split(command)
    done = subprocess.run(
        [*_PROGRAMS[program], *words],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    assert "Traceback" not in done.stderr, f"{command}\n{done.stderr}"
    return done.stdout
