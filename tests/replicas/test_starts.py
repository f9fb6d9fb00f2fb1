"""Replicas that torchrun starts again meet each other, and not what those before them left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

from samba_onnx.replicas.starts import launcher_keeps_store, start_afresh
from tests.sambaflow.test_process_groups import clean

PATIENCE = 200
"""Seconds, for machines that are busy; torch itself would wait for half an hour."""
PROGRAM = """
import os, pathlib, signal, sys, time
IMPORT
import torch
import torch.distributed as dist

killed = pathlib.Path(sys.argv[1], "killed")
is_first = not killed.exists()
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if not is_first and rank == LATE:
    time.sleep(2)  # the other one is there long before, and would read what was left
dist.init_process_group(GROUP)
dist.barrier()
if is_first and rank == 1:
    killed.touch()
    os.kill(os.getpid(), signal.SIGKILL)
total = torch.ones(2)
dist.all_reduce(total)
dist.barrier()
sys.stdout.write(f"{rank} of {size}: {total.tolist()}\\\\n")
dist.destroy_process_group()
"""
SAMBA, SAMBAFLOW = "import samba_onnx", "import sambaflow.samba"
STATED = '"gloo", rank=rank, world_size=size'


@pytest.mark.parametrize(
    ("late", "imports", "group"),
    [
        pytest.param(1, SAMBA, '"gloo"', id="samba_onnx"),
        pytest.param(1, SAMBA, STATED, id="stated"),
        pytest.param(0, SAMBAFLOW, '"mpi"', id="sambaflow"),
    ],
)
def test_a_second_start_ends_well(tmp_path: Path, late: int, imports: str, group: str) -> None:
    text = PROGRAM.replace("IMPORT", imports).replace("LATE", str(late)).replace("GROUP", group)
    program = tmp_path / "program.py"
    program.write_text(text.replace("\\\\n", "\\n"))
    launcher = "-m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 1"
    module = ["-m", "samba_onnx.sambaflow"] if imports == SAMBAFLOW else []
    done = subprocess.run(
        [sys.executable, *launcher.split(), *module, str(program), str(tmp_path)],
        env=clean() | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 of 2: [2.0, 2.0]", "1 of 2: [2.0, 2.0]"]


def test_nothing_changes_where_no_launcher_keeps_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    before = dist.init_process_group
    start_afresh()
    assert dist.init_process_group is before
    assert not launcher_keeps_store({"TORCHELASTIC_USE_AGENT_STORE": "False"})
    assert launcher_keeps_store({"TORCHELASTIC_USE_AGENT_STORE": "True"})
