"""Replicas of ``torchrun``, against torch in one process on the joined batch; and one of two alone."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.facts.names import SEED
from samba_onnx.pef import load_pef
from samba_onnx.pef.gradients import reduction_transfers
from samba_onnx.pef.manifest import Argin
from samba_onnx.replicas.group import Replicas
from samba_onnx.sessions.hyperparameters import Hyperparameters
from tests.sambaflow.test_process_groups import clean
from tests.sessions.replica_program import SCENARIOS, STEPS, compile_all, eager

X, LABEL = torch.linspace(-1, 1, 12).reshape(4, 3), torch.tensor([0, 1, 1, 0])


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.dropout(self.layer(x)), label)


@dataclass
class Second:
    """What replica 1 of two sees of replica 0, which has sevens wherever it has anything."""

    rank: int = 1
    size: int = 2
    is_other_program: bool = False
    reduced: int = 0

    def from_first(self, value: Any) -> Any:
        return (5, 0, [(4,)], [0]) if isinstance(value, tuple) else NAMES

    def of_all(self, value: Any) -> list[Any]:
        if not self.is_other_program:
            return [value, value]
        if isinstance(value, str):
            return ["another", value]
        return [[value[0].replace("tensor(float)", "tensor(bfloat16)"), *value[1:]], value]

    def broadcast(self, values: Any) -> None:
        values[...] = 7

    def start(self, values: Any, name: str) -> Any:
        self.reduced += 1
        values[...] = 0
        return SimpleNamespace(wait=lambda: None)


NAMES = ["net__layer__weight", "net__layer__bias", "net__layer__weight__momentum_buffer"]


def traced(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    second: Second,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Net, Any, Any]:
    """Trace a model as replica 1 of two."""
    monkeypatch.setattr(Replicas, "current", lambda _known: second)
    monkeypatch.setattr(Replicas, "exist", lambda: True)
    model = Net().train()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    inputs = (samba.from_torch_tensor(X, name="x"), samba.from_torch_tensor(LABEL, name="label"))
    path = samba.session.compile(
        model, inputs, optimizer, output=folder / "net.pef", check=False, config_dict=config
    )
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=path, **options)
    return model, outputs, optimizer


def weight() -> torch.Tensor:
    (value,) = samba.session.get_tensors_by_name(NAMES[0])
    return samba.to_torch(value)


@pytest.mark.parametrize("when", ["launched", "distributed", "first run"])
def test_replicas_begin_with_what_the_first_one_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    second = Second()
    if when == "launched":
        samba.session.set_command_line(Namespace(data_parallel=True))
    config = {"distlearn_config": "some.yaml"} if when == "distributed" else {}
    _, _, optimizer = traced(tmp_path, monkeypatch, second, **config)
    assert bool((weight() == 7).all()) == (when != "first run")
    # A run alone is what it says: the replica updates with its own gradients.
    samba.session.run(section_types=["FWD"])
    assert second.reduced == 0
    samba.session.run(data_parallel=True)
    assert second.reduced == 1
    # Gradients of zero, and a momentum of 7: what is left of the steps that replica 0 had made.
    torch.testing.assert_close(weight(), torch.full((2, 3), 7 - 0.1 * 0.9 * 7))
    assert optimizer.device_steps == (5,)


def test_a_backward_does_not_go_on_with_other_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced(tmp_path, monkeypatch, Second())
    samba.session.run(section_types=["FWD"])
    with pytest.raises(UsageError, match="different weights when they ran FWD"):
        samba.session.run(section_types=["BCKWD", "REDUCE"], data_parallel=True)
    samba.session.run(section_types=["FWD", "BCKWD", "REDUCE"], data_parallel=True)


def test_replicas_have_one_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced(tmp_path, monkeypatch, Second(is_other_program=True))
    before = weight()
    with pytest.raises(
        UsageError,
        match=r"that of rank 1 is not that of rank 0: tensor 0.*tensor\(bfloat16\) .* on rank 0 and .*"
        r"tensor\(float\) .* on rank 1.*net\.pef",
    ):
        samba.session.run(data_parallel=True)
    assert torch.equal(weight(), before)


@pytest.mark.parametrize("mode", ["normal", "inorder"])
def test_a_trace_says_the_mode_for_runs_that_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    traced(tmp_path, monkeypatch, Second(), data_parallel_mode="optimal")
    samba.session.run(data_parallel=True, data_parallel_mode=mode)
    device = samba.session._program.required_device()
    modes = {run.request.reduction.mode for run in device.runs._runs.values()}  # type: ignore[union-attr]
    assert modes == {"optimal" if mode == "normal" else mode}


def test_replicas_of_a_new_group_meet_before_a_run_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [Second(), Second()]
    _, outputs, optimizer = traced(tmp_path, monkeypatch, groups[0])
    for group in groups:
        monkeypatch.setattr(Replicas, "current", lambda _known, group=group: group)
        for _ in range(3):
            inputs = [samba.from_torch_tensor(v, name=n) for n, v in (("x", X), ("label", LABEL))]
            samba.session.run(inputs, outputs, data_parallel=True)
    assert [group.reduced for group in groups] == [3, 3]
    # Both first replicas had made 4 steps.
    assert optimizer.device_steps == (4 + 3,)


def test_a_run_alone_is_not_repeated_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, ranks, argins = Second(), list[int](), Hyperparameters.argins

    def noted(own: Hyperparameters, *args: Any, **options: Any) -> Any:
        ranks.append(options["replica"])
        return argins(own, *args, **options)

    _, outputs, _ = traced(tmp_path, monkeypatch, second)
    monkeypatch.setattr(Hyperparameters, "argins", noted)
    inputs = [samba.from_torch_tensor(v, name=n) for n, v in (("x", X), ("label", LABEL))]
    for data_parallel in (False, False, False, True, True, True):
        samba.session.run(inputs, outputs, data_parallel=data_parallel)
    assert second.reduced == 3
    # Masks are drawn for this replica from then on that it has joined the others.
    assert ranks == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("on_rdu", [True, False])
def test_every_mini_batch_of_a_run_is_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_rdu: bool
) -> None:
    """In spatial mapping gradients are reduced for each, before it steps."""
    second = Second()
    spatial = {"mapping": "spatial", "num_spatial_batches": 3}
    options = {"mapping": "spatial", "distlearn_config": "two.yaml"}
    _, outputs, _ = traced(tmp_path, monkeypatch, second, spatial, **options)
    inputs = {"x": X.repeat(3, 1), "label": LABEL.repeat(3)}
    for _ in range(2):
        before = len(samba.session.transfers)
        # What RDUs exchange is no copy between host and device.
        with samba.session.expect_transfers(max_count=3 + 3 * 4 * (not on_rdu)):
            samba.session.run(inputs, outputs, data_parallel=True, reduce_on_rdu=on_rdu)
    assert second.reduced == 6
    manifest = samba.session._program.manifest
    moves = [one for one in samba.session.transfers.records[before:] if one.cause == "reduce"]
    assert moves == list(reduction_transfers(manifest, manifest.graphs[0], 2, on_rdu=on_rdu))


def test_masks_of_replicas_differ() -> None:
    name = f"dropout{SEED}"
    hyperparameters = Hyperparameters([Argin(name, "tensor(int32)", 0.0, (0,))])
    options: dict[str, Any] = {"train": True, "forward": [name], "step": False}
    alone = hyperparameters.argins({}, **options)
    seeds = [hyperparameters.argins({}, **options, replica=rank)[name] for rank in range(4)]
    assert alone[name] == seeds[0]
    assert len(set(seeds)) == 4
    several = hyperparameters.argins({}, **options, batches=2, replica=3)[name]
    assert isinstance(several, list)
    assert several[0] == seeds[3]


def test_a_group_of_one_trains_as_without_a_group(tmp_path: Path) -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    with pytest.MonkeyPatch.context() as patch:
        second = Second(rank=0, size=1)
        model, outputs, _ = traced(tmp_path, patch, second, distlearn_config="one.yaml")
    before = weight()
    inputs = [samba.from_torch_tensor(X, name="x"), samba.from_torch_tensor(LABEL, name="label")]
    # As the documentation calls it, with the model first.
    (loss,) = samba.session.run(model, inputs, outputs, data_parallel=True, reduce_on_rdu=True)
    assert samba.to_torch(loss).isfinite()
    assert not torch.equal(weight(), before)
    assert all(move.cause != "reduce" for move in samba.session.transfers)


CLOSE = {"rtol": 2e-4, "atol": 2e-5}
"""Six steps of AdamW, which divides gradients by their own size: what float32 rounds in small ones is
a difference of the whole step. Parameters move by 0.06."""
COARSE = {"rtol": 2e-2, "atol": 2.5e-2}
"""The same in bfloat16, which keeps three digits of gradients and parameters; a step may turn around."""


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
        close = COARSE if SCENARIOS[name].dtype == torch.bfloat16 else CLOSE
        torch.testing.assert_close(mine, value, **close, msg=lambda text, at=path: f"{at}: {text}")  # type: ignore[misc]
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
    numbers = trained + trained % 2 if on_rdu else 2 * trained

    assert sum(size for _, size in planned) == SCENARIOS[name].dtype.itemsize * numbers
    for replica in ends[name]:
        steps = [some for some in replica["transfers"] if some]
        assert steps == [planned] * STEPS
