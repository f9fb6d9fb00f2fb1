"""Replicas of ``torchrun``, against torch in one process on the joined batch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from samba_onnx.pef import load_pef
from samba_onnx.pef.gradients import reduction_transfers
from tests.sambaflow.test_process_groups import clean
from tests.sessions.replica_program import SCENARIOS, STEPS, compile_all, eager

CLOSE = {"rtol": 2e-4, "atol": 2e-5}
"""Six steps of AdamW, which divides gradients by their own size: what float32 rounds in small ones is
a difference of the whole step. Parameters move by 0.06."""


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What each replica has in the end, by scenario."""
    folder = tmp_path_factory.mktemp("replicas")
    compile_all(folder)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launcher, "--nproc-per-node", "2", "-m", "tests.sessions.replica_program", str(folder)],
        env=clean() | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return {
        name: [torch.load(folder / f"{name}.{rank}", weights_only=False) for rank in range(2)]
        for name in SCENARIOS
    } | {"folder": [folder]}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_replicas_are_one_process_on_the_joined_batch(
    ends: dict[str, list[Any]], name: str
) -> None:
    expected = eager(SCENARIOS[name], 2)
    one, other = ends[name]
    assert one["parameters"].keys() == expected.keys()
    for path, value in expected.items():
        mine = one["parameters"][path]
        assert torch.equal(mine, other["parameters"][path]), path
        torch.testing.assert_close(mine, value, **CLOSE, msg=lambda text, at=path: f"{at}: {text}")  # type: ignore[misc]
    assert str(one["states"]) == str(other["states"])


@pytest.mark.slow
def test_all_modes_compute_the_same_bits(ends: dict[str, list[Any]]) -> None:
    first = ends["normal"][0]["parameters"]
    for name in ("inorder", "optimal", "rdu"):
        for path, value in ends[name][1]["parameters"].items():
            assert torch.equal(value, first[path]), (name, path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_plan_is_the_ledger(ends: dict[str, list[Any]], name: str) -> None:
    on_rdu = SCENARIOS[name].arguments.get("reduce_on_rdu", False)
    (folder,) = ends["folder"]
    with load_pef(folder / f"{name}.pef") as pef:
        manifest = pef.manifest
    moves = reduction_transfers(manifest, manifest.graphs[0], 2, on_rdu=on_rdu)
    planned = [(move.direction.value, move.bytes) for move in moves]
    trained = sum(p.numel() for n, p in eager(SCENARIOS[name], 2).items() if "frozen" not in n)
    # A ring of two passes one half on to be added, and the other one as means; halves are equal.
    assert sum(size for _, size in planned) == 4 * (
        trained + trained % 2 if on_rdu else 2 * trained
    )
    for replica in ends[name]:
        steps = [some for some in replica["transfers"] if some]
        assert steps == [planned] * STEPS
