"""Where the state of training lives, what moves, and how training goes on elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import samba_onnx as samba
from samba_onnx.pef.manifest import Cause
from samba_onnx.sessions import SambaSession
from tests.training.small import Classifier, draw
from tests.training.trajectory import Prepared, prepare

ROOT = Path(__file__).parents[2]


def child(what: str, folder: Path) -> str:
    command = [sys.executable, "-m", "tests.training.child", what, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    torch.manual_seed(0)
    model = Classifier().train()
    samba.from_torch_model_(model)
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.01, max_grad_norm=1.0)
    return prepare(model, draw(), [optimizer], tmp_path)


def test_another_process_goes_on_bit_by_bit(tmp_path: Path) -> None:
    child("start", tmp_path)
    child("resume", tmp_path)
    expected, resumed = (torch.load(tmp_path / f"{n}.pt") for n in ("expected", "resumed"))
    assert expected.keys() == resumed.keys()
    assert any("exp_avg_sq" in name for name in expected)
    assert any("running_var" in name for name in expected)
    different = [name for name in expected if not torch.equal(expected[name], resumed[name])]
    assert not different
    saved = torch.load(tmp_path / "saved.pt")["model"]
    assert not torch.equal(saved["head.weight"], expected["head.weight"])


def test_a_step_moves_inputs_and_fetched_outputs_only(
    prepared: Prepared, session: SambaSession
) -> None:
    batch = draw()
    sizes = {name: tensor.nbytes for name, tensor in batch.items()}
    loss = prepared.outputs[0]
    sizes[loss.sn_name] = 4
    prepared.run(batch, hyperparam_dict={"lr": 0.5})
    for fetched in ((loss,), ()):
        session.transfers.reset()
        named = samba.from_named_dict(batch)
        session.run(named, fetched, {"lr": 0.25, "weight_decay": 0.5, "max_grad_norm": 2.0})
        moved = {move.symbol: move.bytes for move in session.transfers}
        assert moved == {n: s for n, s in sizes.items() if fetched or n != loss.sn_name}
        assert {move.cause for move in session.transfers} <= {Cause.INPUT, Cause.OUTPUT}
        assert len(session.transfers) == len(moved)
    # Without inputs nothing moves at all.
    with session.expect_transfers(max_bytes=0):
        session.run()


def test_host_and_device_are_apart_until_told(prepared: Prepared, session: SambaSession) -> None:
    weight = prepared.model.get_parameter("inner.weight")
    before = samba.to_torch(weight).detach().clone()
    prepared.run(draw())
    assert torch.equal(samba.to_torch(weight), before)
    on_device = weight.sn_data
    assert not torch.equal(on_device, before)
    on_device.zero_()
    assert weight.sn_data.any()  # What was read is a copy.
    session.to_cpu(prepared.model, prepared.optimizers)
    assert torch.equal(samba.to_torch(weight), weight.sn_data)
    state = prepared.optimizers[0].state[weight]
    assert torch.equal(
        samba.to_torch(state["exp_avg"]), session.optim_dict[f"{weight.sn_name}__exp_avg"].sn_data
    )
    assert float(state["step"]) == 1
    with torch.no_grad():
        weight.data = before * 2
        state["exp_avg"] = torch.ones_like(before)
    session.to_rdu(prepared.model, prepared.optimizers)
    assert torch.equal(weight.sn_data, before * 2)
    assert session.optim_dict[f"{weight.sn_name}__exp_avg"].sn_data.eq(1).all()


def test_host_and_device_may_take_turns(prepared: Prepared, session: SambaSession) -> None:
    """A step on the host between two on the device is the second of three."""
    model, optimizer = prepared.model, prepared.optimizers[0]
    twin = Classifier()
    twin.load_state_dict({n: samba.to_torch(t) for n, t in model.state_dict().items()})
    reference = samba.optim.AdamW(twin.parameters(), lr=0.01, max_grad_norm=1.0)
    for number in range(3):
        batch = draw()
        reference.zero_grad()
        twin(**batch)[0].backward()
        reference.step()
        if number != 1:
            prepared.run(batch)
            continue
        session.to_cpu(model, [optimizer])
        optimizer.zero_grad()
        model(**batch)[0].backward()
        optimizer.step()
        session.to_rdu(model, [optimizer])
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(
            prepared.parameters()[name], parameter.detach(), rtol=1e-5, atol=1e-6
        )


def test_weights_live_once_on_the_device(tmp_path: Path) -> None:
    """The device holds weights, gradients and the momentum of SGD, which any run may begin to use.

    That is three times the size of the weights, and no more for more steps. A quarter of a copy is left for activations, code that loads, and what the allocator keeps.
    """
    child("memory", tmp_path)
    weights, *sizes = map(int, child("memory", tmp_path).split())
    assert weights >= 95
    assert max(sizes) <= 3.25 * weights
    assert sizes[-1] - sizes[0] <= 0.05 * weights
