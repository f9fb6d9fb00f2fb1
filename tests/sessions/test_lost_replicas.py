"""Replicas that are really killed, stopped and ended: the others name them, and nothing goes on."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sambaflow.test_process_groups import clean

PROGRAM = Path(__file__).with_name("fault_program.py")
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
MODULE = ["-m", "samba_onnx.sambaflow", str(PROGRAM)]
PATIENCE = 200
"""Seconds, for machines that are busy; torch itself would wait for half an hour."""


@pytest.fixture(scope="module")
def pef(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("lost") / "net.pef")
    subprocess.run([sys.executable, *MODULE, "compile", path], check=True, timeout=PATIENCE)
    return path


def train(how: str, pef: str, replicas: int = 2) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAUNCHER, str(replicas), *MODULE, how, pef],
        env=clean() | {"OMP_NUM_THREADS": "1", "CCL_TIMEOUT": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def told(done: subprocess.CompletedProcess[str]) -> list[tuple[int, str]]:
    """Return the lines about a lost replica: who wrote it, and what."""
    found = re.findall(r"^rank (\d) \([^ ]+, pid \d+\): (.*)$", done.stderr, re.MULTILINE)
    return sorted((int(rank), text) for rank, text in found)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


REDUCING = r" while this rank waited in REDUCE of gradients\[0\], at fault_program\.py:\d+ in main"
FAULTS = {
    "kill": (3, r"rank 1 \(.*\) died" + REDUCING),
    "stop": (2, r"rank 1 \(.*\) is stopped: no sign of life for 3 s" + REDUCING),
    "stop torch": (
        2,
        r"rank 1 \(.*\) is stopped: .* waited in torch\.distributed\.all_reduce, at ",
    ),
    "hang": (2, r"rank 1 \(.*\) hangs: 3 s at fault_program\.py:\d+ in fail" + REDUCING),
    "raise": (2, r"rank 1 \(.*\) raised ValueError: no good" + REDUCING),
    "abexit raise": (2, r"rank 1 \(.*\) raised ValueError: no good" + REDUCING),
    "exit": (2, r"rank 1 \(.*\) died" + REDUCING),
    "end": (2, r"rank 1 \(.*\) ended" + REDUCING),
}


@pytest.mark.parametrize("how", FAULTS)
def test_a_lost_replica_ends_all_of_them_and_is_named_by_each(pef: str, how: str) -> None:
    replicas, expected = FAULTS[how]
    done = train(how, pef, replicas)
    assert done.returncode == 1, done.stderr
    lines = told(done)
    survivors = [rank for rank in range(replicas) if rank != 1]
    assert [rank for rank, _ in lines if rank != 1] == survivors, done.stderr
    for rank, text in lines:
        assert re.match(expected if rank != 1 else "the other ranks gave this one up", text), text
    # What the survivors registered was called; nobody went on, and nobody is left.
    assert {f"handler {rank}" for rank in survivors} <= set(done.stdout.splitlines())
    assert "done" not in done.stdout
    pids = [int(pid) for pid in re.findall(r"^pid (\d+)$", done.stdout, re.MULTILINE)]
    assert len(pids) == replicas
    assert all(map(is_gone, pids))
    # One line says it all, except to him who raised.
    tracebacks = done.stderr.count('fault_program.py", line')
    assert (tracebacks > 0) == how.endswith("raise")


def test_replicas_with_different_pefs_are_told_the_difference(pef: str) -> None:
    compile_other = [sys.executable, *MODULE, "compile other", pef]
    subprocess.run(compile_other, check=True, timeout=PATIENCE)
    done = train("differ", pef)
    assert done.returncode == 1
    assert "pid" not in done.stdout
    # Both say it, if the launcher lets them.
    assert re.search(
        r"UsageError: replicas have different programs: that of rank 1 is not that of rank 0: "
        r"tensor \d+ is input x tensor\(float\) \[4, 6\] on rank 0 and "
        r"input x tensor\(float\) \[8, 6\] on rank 1; this one, rank \d, has ",
        done.stderr,
    )


ADDRESSES = ("127.0.0.1", "127.0.0.2")


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="all of 127 is this machine on Linux"
)
def test_two_machines_name_a_lost_replica_and_start_again(tmp_path: Path) -> None:
    """Two loopback addresses stand for two machines; each has a torchrun."""
    program = tmp_path / "program.py"
    program.write_text(RESTARTED)
    with socket.socket() as free:
        free.bind((ADDRESSES[0], 0))
        port = free.getsockname()[1]
    jobs = []
    for address in ADDRESSES:
        meeting = f"--rdzv-backend c10d --rdzv-id two --rdzv-endpoint {ADDRESSES[0]}:{port}"
        options = f"--nnodes 2 --nproc-per-node 1 {meeting} --local-addr {address} --max-restarts 2"
        module = f"-m samba_onnx.sambaflow {program} {tmp_path}"
        command = f"-m torch.distributed.run {options} {module}"
        jobs.append(
            subprocess.Popen(
                [sys.executable, *command.split()],
                env=clean() | {"OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    ends = [job.communicate(timeout=PATIENCE) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], ends
    output, errors = ("".join(part) for part in zip(*ends, strict=True))
    waited = (
        r"while this rank waited in torch\.distributed\.all_reduce, at program\.py:\d+ in <module>"
    )
    assert re.search(r"rank 0 \(.*\): rank 1 \(.*\) died " + waited, errors)
    assert sorted(output.splitlines()) == ["0 of 2: [2.0, 2.0]", "1 of 2: [2.0, 2.0]"]


RESTARTED = """
import os, pathlib, signal, sys
import sambaflow.samba
import torch
import torch.distributed as dist

dist.init_process_group("mpi")
killed = pathlib.Path(sys.argv[1], "killed")
is_first = not killed.exists()
dist.barrier()
if is_first and dist.get_rank() == 1:
    killed.touch()
    os.kill(os.getpid(), signal.SIGKILL)
total = torch.ones(2)
dist.all_reduce(total)
line = f"{dist.get_rank()} of {dist.get_world_size()}: {total.tolist()}\\n"
dist.barrier()
sys.stdout.write(line)
dist.destroy_process_group()
"""


def test_nobody_outlives_the_launcher(pef: str) -> None:
    done = train("orphan", pef)
    assert done.returncode == -9
    pids = [int(pid) for pid in re.findall(r"^pid (\d+)$", done.stdout, re.MULTILINE)]
    assert pids
    ends = time.monotonic() + PATIENCE
    while not all(map(is_gone, pids)) and time.monotonic() < ends:
        time.sleep(0.1)
    left = [pid for pid in pids if not is_gone(pid)]
    for pid in left:
        os.kill(pid, 9)
    assert not left
