"""Programs that ask for MPI find their other processes, whoever launched them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.process_groups import Place, adapt_process_groups, launched_place

PROGRAM = """
import sys
import torch
import torch.distributed as dist
from torch.distributed import init_process_group as before
import samba_onnx.sambaflow
samba_onnx.sambaflow.install()
import sambaflow.samba
dist.init_process_group({arguments})
total = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(total)
print(dist.get_rank(), dist.get_world_size(), dist.get_backend(), total.tolist(), flush=True)
dist.destroy_process_group()
dist.init_process_group({arguments})
print("again", flush=True)
"""
LAUNCHERS = {
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    "MVAPICH2": ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    "Slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
}


def clean() -> dict[str, str]:
    """Return this process' environment without what a launcher would set."""
    words = ("MASTER_", "RANK", "WORLD_SIZE", "LOCAL_")
    return {k: v for k, v in os.environ.items() if not k.startswith(words)}


def start(arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(arguments=arguments)],
        env=clean() | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_one_process_is_a_group_of_one_and_mpi_is_gloo() -> None:
    process = start('backend="mpi"')
    output, errors = process.communicate(timeout=300)
    assert output.splitlines() == ["0 1 gloo [1.0, 1.0, 1.0]", "again"], errors
    assert errors.count("torch is built without MPI: processes talk through gloo") == 1


def test_processes_of_mpirun_find_each_other() -> None:
    """Both are children of this process, as they would be of mpirun."""
    rank, size, local = LAUNCHERS["Open MPI"]
    processes = [start('"mpi"', **{rank: str(n), size: "2", local: "2"}) for n in range(2)]
    ends = [process.communicate(timeout=300) for process in processes]
    for number, (output, errors) in enumerate(ends):
        assert output.splitlines() == [f"{number} 2 gloo [3.0, 3.0, 3.0]", "again"], errors


def test_processes_that_count_each_other_differently_are_refused() -> None:
    rank, size, local = LAUNCHERS["Open MPI"]
    counts = ("2", "3")
    processes = [
        start('"mpi"', **{rank: str(n), size: count, local: count})
        for n, count in enumerate(counts)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 1
        assert "replicas differ: world size is 3 on rank 1 and 2 on rank 0" in errors


MPI_PROGRAM = """
import sys
from sambaflow.samba.utils import get_rank, get_world_size, is_main_process
import torch
import torch.distributed as dist

dist.init_process_group(backend="mpi")
total = torch.ones(2) * (dist.get_rank() + 1)
dist.all_reduce(total)
line = f"{get_rank()} {get_world_size()} {is_main_process()} {total.tolist()} {sys.argv[1:]}\\n"
sys.stdout.write(line)
sys.stdout.flush()
dist.destroy_process_group()
"""


MPIRUN = Path(sys.executable).parent / "mpirun"
REAL = {
    "torchrun": [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("-m", "samba_onnx.sambaflow"),
    ],
    "mpirun of Open MPI": [
        *(str(MPIRUN), "--allow-run-as-root", "--oversubscribe", "-np", "2"),
        *(sys.executable, "-m", "samba_onnx.sambaflow"),
    ],
}


@pytest.mark.parametrize("launcher", REAL)
def test_a_launcher_starts_a_program_that_asks_for_mpi(launcher: str, tmp_path: Path) -> None:
    if "mpirun" in launcher and not MPIRUN.exists():
        pytest.skip("Open MPI is not in this environment")
    (tmp_path / "program.py").write_text(MPI_PROGRAM)
    done = subprocess.run(
        [*REAL[launcher], "program.py", "run"],
        cwd=tmp_path,
        env=clean(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "0 2 True [3.0, 3.0] ['run']",
        "1 2 False [3.0, 3.0] ['run']",
    ]
    assert done.stderr.count("torch is built without MPI") == 2


def test_what_a_program_says_itself_is_left_as_it_is(tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    arguments = f'"gloo", init_method="file://{meeting}", rank=0, world_size=1'
    output, errors = start(arguments, OMPI_COMM_WORLD_RANK="1").communicate(timeout=300)
    assert output.splitlines() == ["0 1 gloo [1.0, 1.0, 1.0]", "again"], errors
    assert "MPI" not in errors


def test_processes_on_several_machines_have_to_be_told_where_they_meet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in set(os.environ) - set(clean()):
        monkeypatch.delenv(name)
    for name, number in zip(LAUNCHERS["Open MPI"], "042", strict=True):
        monkeypatch.setenv(name, number)
    adapt_process_groups()
    with pytest.raises(UsageError, match="4 processes were launched, 2 of them on this machine"):
        dist.init_process_group("gloo")
    assert not dist.is_initialized()


@pytest.mark.parametrize("names", LAUNCHERS.values(), ids=LAUNCHERS)
def test_launchers_are_recognised(names: tuple[str, str, str]) -> None:
    environment = dict(zip(names, ("3", "8", "4"), strict=True))
    assert launched_place(environment) == Place(3, 8, 4)
    del environment[names[2]]
    assert launched_place(environment) == Place(3, 8, None)
    assert launched_place({names[0]: "3"}) == Place(0, 1, 1)


def test_torchrun_within_mpirun_says_who_is_who() -> None:
    environment = {"RANK": "5", "WORLD_SIZE": "6", "PMI_RANK": "0", "PMI_SIZE": "2"}
    assert launched_place(environment) == Place(5, 6, None)


def test_a_variable_that_is_no_number() -> None:
    # A step of Slurm's on several machines; and its batch script, which is no step.
    step = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_TASKS_PER_NODE": "2(x3)"}
    assert launched_place(step) == Place(3, 6, 2)
    assert launched_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "6"}) == Place(0, 1, 1)
    with pytest.raises(UsageError, match="PMI_RANK is 'first'"):
        launched_place({"PMI_RANK": "first", "PMI_SIZE": "2"})
