"""Processes that a program starts find ``sambaflow``, too, however they are started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from samba_onnx.sambaflow.launching import __file__ as LAUNCHING  # noqa: N812  a constant here

CHECKOUT = Path(LAUNCHING).parents[2]

SPAWNING = """
import multiprocessing
import subprocess
import sys

import sambaflow

def version(number):
    return f"{number} {sambaflow.__version__} {sambaflow.__spec__.name} {sys.argv[1:]}"

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("pool", *pool.map(version, [1, 2]), sep="\\n")
    code = "import sambaflow.logging as it; print('child', it.__spec__.name)"
    subprocess.run([sys.executable, "-c", code], check=True)
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    subprocess.run([sys.executable, "-c", nested, code], check=True)
    subprocess.run([sys.executable, "-m", "samba_onnx.sambaflow", sys.argv[2]], check=True)
"""

LOADING = """
import sambaflow.samba as samba
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        assert isinstance(samba.ones(1), samba.SambaTensor)
        return torch.tensor([float(index)])

if __name__ == "__main__":
    for kind in ("spawn", "forkserver"):
        loader = DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context=kind)
        print(kind, [batch.flatten().tolist() for batch in loader])
"""


def launched(program: Path, *arguments: str, **environment: str) -> list[str]:
    command = [sys.executable, "-m", "samba_onnx.sambaflow", str(program), *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},  # lines in their order
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("path", ["", str(CHECKOUT)])
def test_spawned_processes_and_interpreters_find_it(path: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SPAWNING)
    (tmp_path / "other.py").write_text("import sambaflow; print('other', sambaflow.__spec__.name)")
    lines = launched(tmp_path / "program.py", "run", str(tmp_path / "other.py"), PYTHONPATH=path)
    arguments = ["run", str(tmp_path / "other.py")]
    assert lines == [
        *("pool", f"1 1.19.0 samba_onnx.sambaflow {arguments}"),
        f"2 1.19.0 samba_onnx.sambaflow {arguments}",
        *["child samba_onnx.sambaflow.logging"] * 2,
        "other samba_onnx.sambaflow",
    ]


def test_workers_of_a_dataloader_find_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LOADING)
    batches = "[[0.0, 1.0], [2.0, 3.0]]"
    assert launched(tmp_path / "program.py") == [f"spawn {batches}", f"forkserver {batches}"]


def test_only_a_launched_program_changes_the_environment(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os, sys; print(os.environ['PYTHONPATH'], *sys.path, sep='\\n')"
    )
    folder, *path = launched(tmp_path / "program.py", PYTHONPATH="")
    assert (path[0], path[-1]) == (str(tmp_path), folder)
    assert [
        entry.name for entry in Path(folder).iterdir() if entry.is_dir() and entry.name[0] != "_"
    ] == ["sambaflow"]
    code = "from samba_onnx.sambaflow import install; import os; print(install(), 'PYTHONPATH' in os.environ)"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=kept,
        cwd=CHECKOUT,
        check=True,
    )
    assert done.stdout.split() == ["True", "False"]
