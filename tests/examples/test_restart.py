"""A replica is killed, torchrun starts all of them again, and they end where they would have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.examples.launching import ROOT, launch, make_data
from tests.sambaflow.test_process_groups import clean

EPOCHS = 40
PATIENCE = 250


def start(folder: Path, checkpoints: str) -> subprocess.Popen[str]:
    launcher = "torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 1 -m"
    program = f"samba_onnx.sambaflow {ROOT}/examples/convnet.py run -b 8 --data-parallel --resume"
    options = f"--dropout-rate 0 --num-epochs {EPOCHS} --ckpt-dir {checkpoints}"
    command = f"-m {launcher} {program} --pef out/convnet/convnet.pef {options}"
    return subprocess.Popen(
        [sys.executable, *command.split()],
        cwd=folder,
        env=clean() | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def children(pid: int) -> list[int]:
    """Return the processes that a process started, in the order in which it did."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, tasks.read_text().split())
    return sorted(found)


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the replicas in /proc")
@pytest.mark.parametrize("victim", [0, 1])
def test_a_training_that_lost_a_replica_ends_with_the_same_weights(
    tmp_path: Path, victim: int
) -> None:
    make_data(tmp_path, "digits", "data", "--train", 32, "--test", 16)
    launch("convnet.py", "compile", "-b", 8, folder=tmp_path)
    whole = start(tmp_path, "whole")
    _, errors = whole.communicate(timeout=PATIENCE)
    assert whole.returncode == 0, errors
    job = start(tmp_path, "parts")
    ends = time.monotonic() + PATIENCE
    while not (tmp_path / "parts" / "2.pt").exists() and time.monotonic() < ends:
        time.sleep(0.01)
    os.kill(children(job.pid)[victim], signal.SIGKILL)
    output, errors = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, errors
    # It was killed before the end, named, and what was done before was not done again.
    assert " died while this rank " in errors
    epochs = [line.partition(":")[0] for line in output.splitlines() if line.startswith("Epoch")]
    assert EPOCHS <= len(epochs) < EPOCHS + 2 + 1
    last = f"{EPOCHS}.pt"
    parts, expected = (torch.load(tmp_path / name / last) for name in ("parts", "whole"))
    torch.testing.assert_close(parts, expected, rtol=0, atol=0)
