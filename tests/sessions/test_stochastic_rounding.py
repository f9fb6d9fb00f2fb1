"""Training in bfloat16 with stochastic rounding: it goes on where rounding to nearest stands still."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.facts.names import GRADIENT_ROUNDING_SEED, ROUNDING_SEED
from samba_onnx.optim import optimizer_record
from samba_onnx.pef import load_pef
from samba_onnx.pef.manifest import Argin
from samba_onnx.report import Report
from samba_onnx.sambaflow.samba import env
from samba_onnx.sessions import SESSION, SambaSession
from samba_onnx.sessions.hyperparameters import Hyperparameters
from samba_onnx.sessions.optimizer_steps import OptimizerSteps

STEPS = 150

READS = ("x",)
"""What forward sections read: an input, and no argin of a dropout."""


class Net(nn.Module):
    """A linear layer and the square of what it returns, in float32."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(16, 8).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss of a batch."""
        return self.layer(x).float().square().mean()


def batch() -> Tensor:
    return torch.randn(32, 16, generator=torch.Generator().manual_seed(1))


class Trained:
    """A model that is being trained in a session of its own."""

    def __init__(
        self,
        folder: Path,
        adam: bool = False,
        switches: tuple[Callable[[], None], ...] = (),
        **options: Any,
    ) -> None:
        SESSION.reset()
        for switch in switches:
            switch()
        self.model = Net(torch.bfloat16)
        samba.from_torch_model_(self.model)
        self.optimizer: Any = (
            samba.optim.AdamW(self.model.parameters(), lr=3e-5)
            if adam
            else samba.optim.SGD(self.model.parameters(), lr=3e-4)
        )
        self.inputs = (samba.from_torch_tensor(batch().bfloat16(), name="x"),)
        self.path = folder / "net.pef"
        if not self.path.exists() or options:
            SESSION.compile(
                self.model, self.inputs, self.optimizer, output=self.path, check=False, **options
            )

    def trace(self) -> Trained:
        self.outputs = samba.utils.trace_graph(
            self.model, self.inputs, self.optimizer, pef=str(self.path)
        )
        return self

    def losses(self, steps: int, **options: Any) -> list[float]:
        return [
            float(samba.to_torch(SESSION.run(self.inputs, self.outputs, **options)[0]))
            for _ in range(steps)
        ]

    def weights(self) -> list[Tensor]:
        SESSION.to_cpu(self.model, [self.optimizer])
        return [samba.to_torch(one).detach().clone() for one in self.model.parameters()]


def in_torch(adam: bool) -> list[float]:
    """Return the losses of torch's own training in float32."""
    model, values = Net(torch.float32), batch()
    parameters = model.parameters()
    optimizer: Any = (
        torch.optim.AdamW(parameters, lr=3e-5, betas=(0.9, 0.997), weight_decay=0)
        if adam
        else torch.optim.SGD(parameters, lr=3e-4)
    )
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(values)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("adam", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_it_progresses_as_float32_does_where_nearest_stands_still(
    session: SambaSession, tmp_path: Path, adam: bool
) -> None:
    """Steps of 3e-5 and less move no weight of 0.1, whose numbers lie 5e-4 apart."""
    ways: dict[str, dict[str, Any]] = {
        "nearest": {"name": "m"},
        "random": {"stochastic_rounding": "steps,gradients"},
    }
    losses = {way: Trained(tmp_path, adam, **ways[way]).trace().losses(STEPS) for way in ways}
    losses["float32"] = in_torch(adam)
    fallen = {way: one[0] - sum(one[-5:]) / 5 for way, one in losses.items()}
    assert abs(fallen["nearest"]) < 0.05 * fallen["float32"]
    assert abs(fallen["random"] - fallen["float32"]) < 0.15 * fallen["float32"]


@pytest.mark.parametrize("adam", [False, True])
def test_a_seed_gives_bits_and_a_run_that_goes_on_those_of_one_that_never_stopped(
    session: SambaSession, tmp_path: Path, adam: bool
) -> None:
    """Also of gradients that two runs accumulate, and of steps without momentum, which leave no state."""

    def train(trained: Trained, steps: int) -> None:
        for _ in range(steps):
            trained.losses(1, section_types=["FWD", "BCKWD"])
            trained.losses(1)

    whole = Trained(tmp_path, adam, stochastic_rounding="steps,gradients").trace()
    train(whole, 6)
    expected = whole.weights()
    again = Trained(tmp_path, adam).trace()
    train(again, 3)
    again.weights()
    state, steps = again.model.state_dict(), again.optimizer.state_dict()
    assert set(steps["state"]) == set(range(2 * adam)) or not adam
    later = Trained(tmp_path, adam)
    later.model.load_state_dict(state)
    later.optimizer.load_state_dict(steps)
    train(later.trace(), 3)
    for one, other in zip(expected, later.weights(), strict=True):
        assert torch.equal(one, other)
    assert torch.optim.SGD(later.model.parameters()).load_state_dict(steps) is None or adam
    another = Trained(tmp_path, adam).trace()
    another.losses(6, hyperparam_dict={f"optimizer0{ROUNDING_SEED}": 5})
    assert not all(map(torch.equal, expected, another.weights()))


def test_what_is_copied_is_what_was_planned_and_the_report_says_what_is_rounded(
    session: SambaSession, tmp_path: Path
) -> None:
    settings = {"enable_safe_stochastic_rounding": True, "weight_grad_reduce": "bf16sr"}
    sizes = {}
    for name, options in (("nearest", {"name": "m"}), ("random", {"config_dict": settings})):
        trained = Trained(tmp_path, **options).trace()
        before = len(SESSION.transfers)
        trained.losses(2)
        with load_pef(trained.path) as pef:
            report = Report.from_manifest(pef.manifest)
            planned = pef.manifest.graphs[0].run_transfers
        moved = SESSION.transfers.records[before:]
        assert sum(one.bytes for one in moved) == 2 * sum(one.bytes for one in planned)
        sizes[name] = sum(one.bytes for one in moved)
        notes = [note for note in report.notes if "Stochastic" in note]
        assert bool(notes) == (name == "random")
        assert not any("hints" in note.lower() for note in report.notes)
    assert sizes["nearest"] == sizes["random"]
    assert notes == [
        "Stochastic rounding to bfloat16: values that optimizers store in bfloat16 (4), sums that "
        "make gradients of weights (2)."
    ]
    assert SESSION.get_dropout_seed_argin_names() == []


def test_switches_count_for_the_program_that_is_compiled_next(
    session: SambaSession, tmp_path: Path
) -> None:
    def rounded(**options: Any) -> set[str]:
        path = Trained(tmp_path, **options).path
        with load_pef(path) as pef:
            return {argin.name for argin in pef.manifest.argins if "rounding" in argin.name}

    sums = (env.enable_addbias_grad_accum_stoc, env.enable_conv_grad_accum_stoc)
    assert rounded(name="m", switches=sums) == {GRADIENT_ROUNDING_SEED}
    assert rounded(name="m") == set()
    assert rounded(stochastic_rounding="steps") == {f"optimizer0{ROUNDING_SEED}"}
    assert rounded(stochastic_rounding="steps", switches=(env.disable_sgd_stoc,)) == set()
    with pytest.raises(UsageError, match="expected some of steps"):
        session.switch_rounding("sums")


def steps_of_sgd() -> OptimizerSteps:
    """Return the steps of an optimizer that nobody has on the host."""
    layer = nn.Linear(2, 2)
    record = optimizer_record(
        torch.optim.SGD(layer.parameters(), 0.1), names=dict(layer.named_parameters())
    )
    return OptimizerSteps([record])


def test_a_checkpoint_that_counts_no_random_steps_begins_to_count() -> None:
    """Torch writes such ones, and so do programs that do not round at random."""
    layer = nn.Linear(2, 2)
    names = dict(layer.named_parameters())
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    plain = torch.optim.SGD(layer.parameters(), 0.1).state_dict()
    steps = OptimizerSteps([optimizer_record(optimizer, names=names)], [optimizer])
    steps.count_roundings()
    steps.stepped(3)
    assert steps.steps_of() == {"optimizer0": 3}
    optimizer.load_state_dict(plain)
    steps.resume()
    assert steps.steps_of() == {"optimizer0": 0}
    steps.stepped(1)
    assert steps.steps_of() == {"optimizer0": 1}


def test_steps_draw_alike_in_all_replicas_and_gradients_do_not() -> None:
    names = [f"optimizer0{ROUNDING_SEED}", GRADIENT_ROUNDING_SEED]
    argins = [Argin(name, "tensor(int32)", 0.0, (0,)) for name in names]
    first, second = (Hyperparameters(argins, steps_of_sgd()) for _ in range(2))
    options: dict[str, Any] = {"train": True, "forward": READS, "step": True}
    second._base = 77  # as if torch had another seed there
    assert first.argins({}, **options)[names[0]] != second.argins({}, **options)[names[0]]
    first.keep({}, forward=True, step=True)
    second.resume_from(first.steps_done)
    second.round_as(first.rounding_seed)
    for _ in range(2):
        one, other = first.argins({}, **options), second.argins({}, **options, replica=1)
        assert one[names[0]] == other[names[0]]
        assert one[names[1]] != other[names[1]]
        for hyperparameters in (first, second):
            hyperparameters.keep({}, forward=True, step=True)


def test_each_run_and_each_mini_batch_draws_by_a_seed_of_its_own() -> None:
    """Mini-batches of one run are to it as runs; a reset draws gradients as at the step's beginning."""
    names = [f"optimizer0{ROUNDING_SEED}", GRADIENT_ROUNDING_SEED]
    argins = [Argin(name, "tensor(int32)", 0.0, (0,)) for name in names]
    single, several = (Hyperparameters(argins, steps_of_sgd()) for _ in range(2))
    seeds: list[list[Any]] = []
    for step in (False, True, True, True, False, False, True):  # four steps, two of several runs
        options: dict[str, Any] = {"train": True, "forward": READS, "step": step}
        scalars = single.argins({}, **options)
        seeds.append([scalars.get(name) for name in names])
        single.keep({}, forward=True, step=step)
    steps = [seed for seed, _ in seeds if seed is not None]
    gradients = [seed for _, seed in seeds]
    assert len(set(steps)) == len(steps) == 4
    assert len(set(gradients)) == len(gradients) == 7
    for step, batches in ((False, 1), (True, 3), (False, 2), (True, 1)):
        options = {"train": True, "forward": READS, "step": step, "batches": batches}
        scalars = several.argins({}, **options)
        assert scalars[names[1]] == gradients[:batches]
        assert scalars.get(names[0], steps[:0]) == steps[: batches * step]
        gradients, steps = gradients[batches:], steps[batches * step :]
        several.keep({}, forward=True, step=step, batches=batches)
    options = {"train": True, "forward": READS, "step": False}
    drawn = several.argins({}, **options)
    several.keep({}, forward=True, step=False)
    assert several.argins({}, **options) != drawn
    several.reset_random()
    assert several.argins({}, **options) == drawn
