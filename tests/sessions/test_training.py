"""Training through the session: steps, sections, hyperparameters, state, dropout."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import ScheduleError, UsageError
from samba_onnx.sessions import SambaSession
from tests.sessions.modules import Dropping

# Ten steps of a small network: sums of a few float32 products in another order, amplified by
# Adam's division while the second moments are small.
TOLERANCE = {"rtol": 1e-5, "atol": 2e-6}


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.outer = nn.Linear(8, 3)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        out = self.outer(torch.relu(self.inner(x)))
        return nn.functional.cross_entropy(out, y), out


@dataclass
class Trained:
    """A model on the device and its twin on the host."""

    model: Regression
    optimizer: torch.optim.Optimizer
    outputs: tuple[samba.SambaTensor, ...]
    twin: Regression
    twin_optimizer: torch.optim.Optimizer
    path: str

    def draw(self) -> tuple[Tensor, Tensor]:
        return torch.randn(4, 6), torch.randint(3, (4,))

    def step_twin(self, x: Tensor, y: Tensor, lr: float) -> Tensor:
        for group in self.twin_optimizer.param_groups:
            group["lr"] = lr
        self.twin_optimizer.zero_grad()
        loss, _ = self.twin(x, y)
        loss.backward()
        self.twin_optimizer.step()
        return loss.detach()

    def check(self) -> None:
        for one, other in zip(self.model.parameters(), self.twin.parameters(), strict=True):
            torch.testing.assert_close(one.data, other.data, **TOLERANCE)


def prepare(session: SambaSession, folder: Path, **options: object) -> Trained:
    torch.manual_seed(0)
    model = Regression().train()
    twin = copy.deepcopy(model)
    samba.from_torch_model_(model)
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    inputs = (samba.randn(4, 6, name="x"), samba.randint(3, (4,), name="y"))
    path = session.compile(model, inputs, optimizer, output=folder / "train.pef", **options)
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=path)
    reference = torch.optim.AdamW(twin.parameters(), lr=0.01, betas=(0.9, 0.997), weight_decay=0.1)
    return Trained(model, optimizer, outputs, twin, reference, path)


def named(x: Tensor, y: Tensor) -> dict[str, samba.SambaTensor]:
    return samba.from_named_dict({"x": x, "y": y})


def test_steps_are_those_of_torch(session: SambaSession, tmp_path: Path) -> None:
    trained = prepare(session, tmp_path)
    assert session.get_section_types() == {"FWD", "BCKWD", "OPT"}
    hyperparameters: dict[str, float] = {}
    for step in range(10):
        x, y = trained.draw()
        if step % 4 == 0:  # in between the last one persists
            hyperparameters = {"lr": 0.01 * (step + 1)}
        if step % 2:
            loss, _ = session.run(named(x, y), trained.outputs, hyperparameters)
        else:
            types = ["fwd", "bckwd", "OPT"]
            loss, _ = session.run(
                named(x, y), trained.outputs, hyperparameters, section_types=types
            )
        lr, hyperparameters = hyperparameters.get("lr", 0.0), {}
        if lr == 0.0:
            lr = trained.twin_optimizer.param_groups[0]["lr"]
        wanted = trained.step_twin(x, y, lr)
        torch.testing.assert_close(loss.torch(), wanted, rtol=1e-5, atol=1e-6)
    gradient = trained.twin.inner.weight.grad
    torch.testing.assert_close(trained.model.inner.weight.sn_grad, gradient, rtol=1e-4, atol=1e-6)
    session.to_cpu(trained.model, [trained.optimizer])
    trained.check()
    moment = trained.optimizer.state[trained.model.inner.weight]["exp_avg"]
    reference = trained.twin_optimizer.state[trained.twin.inner.weight]["exp_avg"]
    torch.testing.assert_close(moment, reference, **TOLERANCE)
    assert int(trained.optimizer.state[trained.model.inner.weight]["step"]) == 10


def test_a_step_moves_inputs_and_outputs_only(session: SambaSession, tmp_path: Path) -> None:
    trained = prepare(session, tmp_path)
    for _ in range(3):
        with session.expect_transfers(max_bytes=4 * 6 * 4 + 4 * 8 + 4, max_count=3):
            session.run(named(*trained.draw()), trained.outputs[0])


def test_forward_alone_changes_no_weight(session: SambaSession, tmp_path: Path) -> None:
    trained = prepare(session, tmp_path)
    before = trained.model.inner.weight.sn_data
    for _ in range(2):
        session.run(named(*trained.draw()), trained.outputs, section_types=["FWD"])
    assert torch.equal(trained.model.inner.weight.sn_data, before)
    with pytest.raises(ScheduleError, match="GRADNORM does not exist"):
        session.run(section_types=["GRADNORM"])
    with pytest.raises(UsageError, match="lr is -1"):
        session.run(named(*trained.draw()), (), {"lr": -1.0})
    assert torch.equal(trained.model.inner.weight.sn_data, before)


def test_the_gradient_of_an_output_is_used_by_the_same_run(
    session: SambaSession, tmp_path: Path
) -> None:
    trained = prepare(session, tmp_path)
    x, y = trained.draw()
    types = ["FWD", "BCKWD"]
    loss = trained.outputs[0]
    torch.testing.assert_close(loss.sn_grad, torch.ones(()))
    session.run(named(x, y), (), section_types=types)
    once = trained.model.inner.weight.sn_grad
    loss.sn_grad = torch.tensor(8.0)
    session.run(named(x, y), (), section_types=types)
    torch.testing.assert_close(trained.model.inner.weight.sn_grad, 8 * once)
    session.run(named(x, y), (), section_types=types, grad_of_outputs=[torch.tensor(2.0)])
    torch.testing.assert_close(trained.model.inner.weight.sn_grad, 2 * once)
    samba.utils.init_output_grads([loss.sn_name], [], {loss.sn_name: torch.tensor(4.0)})
    session.run(named(x, y), (), section_types=types)
    torch.testing.assert_close(trained.model.inner.weight.sn_grad, 4 * once)
    samba.utils.init_output_grads([loss.sn_name])
    session.run(named(x, y), (), section_types=types)
    torch.testing.assert_close(trained.model.inner.weight.sn_grad, once)


def test_gradients_accumulate_between_zerograd_and_opt(
    session: SambaSession, tmp_path: Path
) -> None:
    trained = prepare(session, tmp_path, gradient_accumulation=True)
    assert "ZEROGRAD" in session.get_section_types()
    for _ in range(3):
        session.run(section_types=["ZEROGRAD"])
        trained.twin_optimizer.zero_grad()
        for _ in range(4):
            x, y = trained.draw()
            session.run(named(x, y), (), section_types=["FWD", "BCKWD"])
            trained.twin(x, y)[0].backward()
        session.run(section_types=["OPT"])
        trained.twin_optimizer.step()
    session.to_cpu(trained.model)
    trained.check()


def test_training_goes_on_from_a_checkpoint(session: SambaSession, tmp_path: Path) -> None:
    trained = prepare(session, tmp_path)
    steps = [trained.draw() for _ in range(6)]
    for step in steps[:3]:
        session.run(named(*step))
    session.to_cpu(trained.model, [trained.optimizer])
    saved = copy.deepcopy(trained.model.state_dict()), trained.optimizer.state_dict()
    for step in steps[3:]:
        session.run(named(*step))
    expected = trained.model.inner.weight.sn_data

    session.reset()
    model = Regression().train()
    samba.from_torch_model_(model)
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    inputs = (samba.randn(4, 6, name="x"), samba.randint(3, (4,), name="y"))
    samba.utils.trace_graph(model, inputs, optimizer, pef=trained.path)
    for step in steps[3:]:
        session.run(named(*step))
    assert torch.equal(model.inner.weight.sn_data, expected)


def test_a_training_pef_runs_without_optimizers(session: SambaSession, tmp_path: Path) -> None:
    trained = prepare(session, tmp_path)
    x, y = trained.draw()
    inputs = named(x, y)
    outputs = samba.utils.trace_graph(trained.model, inputs, pef=trained.path)
    loss, out = session.run(inputs, outputs, section_types=["FWD"])
    with torch.no_grad():
        wanted = trained.twin(x, y)
    torch.testing.assert_close(loss.torch(), wanted[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(out.torch(), wanted[1], rtol=1e-5, atol=1e-6)


def test_other_optimizers_are_refused(session: SambaSession, tmp_path: Path) -> None:
    trained = prepare(session, tmp_path)
    other = samba.optim.SGD(trained.model.parameters(), lr=0.1)
    inputs = named(*trained.draw())
    with pytest.raises(UsageError, match="compiled with AdamW; it was traced with SGD"):
        samba.utils.trace_graph(trained.model, inputs, other, pef=trained.path)
    amsgrad = samba.optim.AdamW(trained.model.parameters(), lr=0.1, amsgrad=True)
    with pytest.raises(UsageError, match=r"AdamW; it was traced with AdamW\(amsgrad\)"):
        samba.utils.trace_graph(trained.model, inputs, amsgrad, pef=trained.path)


def test_dropout_follows_rates_seeds_and_train(session: SambaSession, tmp_path: Path) -> None:
    torch.manual_seed(11)
    model = Dropping().train()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.0)
    x = samba.randn(32, 8, name="x")
    path = session.compile(model, (x,), optimizer, output=tmp_path / "drop.pef")
    (loss,) = samba.utils.trace_graph(model, (x,), optimizer, pef=path)
    rates = session.get_dropout_rate_argin_names()
    seeds = session.get_dropout_seed_argin_names()
    assert len(rates) == len(seeds) == 2
    assert set(rates) | set(seeds) < set(session.get_argin_names())

    def run(**options: object) -> float:
        return session.run([x], loss, section_types=["FWD"], **options)[0].item()

    with torch.no_grad():
        plain = copy.deepcopy(model).eval()(x).item()
    drawn = [run() for _ in range(4)]
    assert len({*drawn, plain}) == 5
    assert run(train=False) == pytest.approx(plain, rel=1e-5)
    assert run() != pytest.approx(plain, rel=1e-5)
    session.reset_random_generator()
    assert [run() for _ in range(4)] == drawn
    assert run(hyperparam_dict={"p": 0.0}) == pytest.approx(plain, rel=1e-5)
    assert run() == pytest.approx(plain, rel=1e-5)  # persists
    assert run(hyperparam_dict={rates[0]: 0.9}) != pytest.approx(plain, rel=1e-5)
    fixed = {"p": 0.5, rates[0]: 0.5, **dict.fromkeys(seeds, 7)}
    assert run(hyperparam_dict=fixed) == run()


def test_names_are_those_that_users_give(session: SambaSession, tmp_path: Path) -> None:
    """Weights once, not as what optimizers write; hyperparameters, not what is made of them."""
    trained = prepare(session, tmp_path)
    names = [parameter.sn_name for parameter in trained.model.parameters()]
    assert session.get_weight_names() == names
    assert list(session.get_argin_names()) == ["lr", "beta1", "beta2", "eps", "weight_decay"]


def test_an_optimizer_of_another_model_is_refused(session: SambaSession, tmp_path: Path) -> None:
    trained = prepare(session, tmp_path)
    other = samba.optim.SGD(copy.deepcopy(trained.model).parameters(), lr=0.1)
    with pytest.raises(UsageError, match="SGD has parameters that"):
        session.compile(trained.model, named(*trained.draw()), other, output=tmp_path / "o.pef")
