"""Replicas that end in good order leave no thread behind that needs the interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sambaflow.test_process_groups import clean

PROGRAM = """
import atexit, os, sys
from pathlib import Path

# Registered before the product, and so called after what that registers.
@atexit.register
def report():
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    Path(sys.argv[1], os.environ["RANK"]).write_text(" ".join([when, *names]))

when = "before"
import torch
import torch.distributed as dist
from samba_onnx.replicas.group import Replicas

dist.init_process_group("gloo")
group = Replicas()
values = torch.ones(1000)
dist.all_reduce(values)
names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
assert "pt_gloo_runloop" in names, names
when = "after"
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads threads' names in /proc")
def test_no_thread_of_a_group_outlives_the_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                "2",
            ),
            *(str(program), str(tmp_path)),
        ],
        env=clean(),
        check=True,
        timeout=200,
    )
    for rank in ("0", "1"):
        when, *names = (tmp_path / rank).read_text().split(" ")
        assert when == "after"
        assert [name for name in names if "gloo" in name] == []
