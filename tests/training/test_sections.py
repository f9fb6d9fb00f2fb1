"""Sections of a training program: what each does alone, and how runs choose them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import ScheduleError
from samba_onnx.sessions import SambaSession
from tests.training.small import CLOSE, Classifier, draw, gradients_of
from tests.training.trajectory import Prepared, prepare


@pytest.fixture
def twin() -> Classifier:
    torch.manual_seed(0)
    return Classifier().train()


@pytest.fixture
def prepared(twin: Classifier, tmp_path: Path) -> Prepared:
    model = copy.deepcopy(twin)
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    return prepare(model, draw(), [optimizer], tmp_path)


def same(prepared: Prepared, twin: nn.Module) -> None:
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(prepared.parameters()[name], parameter.detach(), **CLOSE)


@pytest.mark.parametrize(
    "types", [["FWD", "BCKWD", "OPT"], ["fwd", "bckwd", "opt"], ["Fwd", "BckWd", "oPT"], []]
)
def test_types_may_be_written_in_any_case(
    prepared: Prepared, twin: Classifier, session: SambaSession, types: list[str]
) -> None:
    assert session.get_section_types() == {"FWD", "BCKWD", "OPT"}
    batch = draw()
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    twin(**batch)[0].backward()
    optimizer.step()
    prepared.run(batch, section_types=types)
    same(prepared, twin)


def test_forward_alone_leaves_weights_and_gradients(prepared: Prepared, twin: Classifier) -> None:
    batch = draw()
    prepared.run(batch)
    weights, gradients = prepared.parameters(), prepared.gradients()
    outputs = prepared.run(draw(), section_types=["FWD"])
    assert outputs[1].shape == (4, 3)
    for before, after in ((weights, prepared.parameters()), (gradients, prepared.gradients())):
        assert all(torch.equal(before[name], after[name]) for name in before)


def test_backward_goes_on_from_what_forward_left(prepared: Prepared, twin: Classifier) -> None:
    batch = draw()
    loss, _ = prepared.run(batch, section_types=["FWD"])
    expected = twin(**batch)[0]
    torch.testing.assert_close(loss, expected.detach(), **CLOSE)
    for _ in range(2):  # Gradients are overwritten, not added up.
        samba.session.run(section_types=["BCKWD"])
        for name, gradient in gradients_of(twin, twin(**batch)[0]).items():
            torch.testing.assert_close(prepared.gradients()[name], gradient, **CLOSE)
    same(prepared, twin)
    samba.session.run(section_types=["OPT"])
    expected.backward()
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    same(prepared, twin)


def test_sections_by_id_and_calls_between_ids(
    prepared: Prepared, twin: Classifier, session: SambaSession
) -> None:
    batch, ids = draw(), session.get_section_ids()
    calls = len(session._program.manifest.graphs[0].calls)
    twin(**batch)[0].backward()
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    prepared.run(batch, run_until_call_id=1)
    session.run(run_from_call_id=1, run_until_call_id=calls)
    same(prepared, twin)
    twin.zero_grad()
    twin(**batch)[0].backward()
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    prepared.run(batch, section_ids=ids)
    same(prepared, twin)


def test_sections_that_are_not_there_are_refused(prepared: Prepared) -> None:
    for name in ("ZEROGRAD", "GRADNORM"):
        with pytest.raises(ScheduleError, match=name):
            samba.session.run(section_types=[name])


def test_one_device_has_nothing_to_reduce(prepared: Prepared, twin: Classifier) -> None:
    """Programs for several devices ask for it, together with others or apart, and run on one, too."""
    batch = draw()
    twin(**batch)[0].backward()
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    prepared.run(batch, section_types=["FWD", "BCKWD", "REDUCE"])
    before = len(samba.session.transfers)
    assert samba.session.run(section_types={"reduce"}) == ()
    assert len(samba.session.transfers) == before
    samba.session.run(section_types=["reduce", "opt"])
    same(prepared, twin)
    with pytest.raises(ScheduleError, match="GRADNORM"):
        samba.session.run(section_types=["REDUCE", "GRADNORM"])


def test_the_log_lists_every_section_with_its_type(prepared: Prepared) -> None:
    log = Path(prepared.path).with_suffix(".pef.log")
    text = log.read_text()
    for kind, number in zip(("FWD", "BCKWD", "OPT"), samba.session.get_section_ids(), strict=False):
        assert kind in text
        assert str(number) in text


def test_the_gradient_of_a_loss_scales_all_gradients(prepared: Prepared, twin: Classifier) -> None:
    batch = draw()
    prepared.outputs[0].sn_grad = torch.tensor(1024.0)
    prepared.run(batch, section_types=["FWD", "BCKWD"])
    for name, gradient in gradients_of(twin, twin(**batch)[0] * 1024.0).items():
        torch.testing.assert_close(prepared.gradients()[name], gradient, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(prepared.outputs[0].sn_grad, torch.tensor(1024.0))


class Two(nn.Module):
    """A layer that both heads share; one of the heads, and a layer that nothing reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(6, 5)
        self.left = nn.Linear(5, 3)
        self.right = nn.Linear(5, 2)
        self.idle = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        states = torch.tanh(self.shared(x))
        left, right = self.left(states), self.right(states)
        return left.square().mean(), right.abs().mean(), right


@pytest.mark.parametrize("indices", [[0, 1, 2], [0], [1], [0, 1], [(2,)]])
def test_loss_indices_choose_where_gradients_start(
    tmp_path: Path, session: SambaSession, indices: Sequence[int | tuple[int, ...]]
) -> None:
    torch.manual_seed(1)
    twin = Two()
    model = copy.deepcopy(twin)
    samba.from_torch_model_(model)
    batch = {"x": torch.randn(4, 6)}
    prepared = prepare(model, batch, [], tmp_path, inference=True)
    assert session.get_section_types() == {"FWD"}
    session.reset()
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    prepared = prepare(model, batch, [optimizer], tmp_path, loss_indices=indices)
    prepared.run(batch, section_types=["fwd", "bckwd"])
    outputs = twin(**batch)
    flat = [i if isinstance(i, int) else i[0] for i in indices]
    total = torch.stack([outputs[i].sum() for i in flat]).sum()
    expected = gradients_of(twin, total)
    made = prepared.gradients()
    assert made.keys() == expected.keys()
    assert not any(name.startswith("idle") for name in made)
    for name, gradient in expected.items():
        torch.testing.assert_close(made[name], gradient, **CLOSE)


class Losses(Two):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        states = torch.tanh(self.shared(x))
        left, right = self.left(states), self.right(states)
        none = F.mse_loss(left, torch.zeros_like(left), reduction="none")
        return none, F.l1_loss(right, torch.ones_like(right)), left


def test_outputs_of_loss_operators_are_losses(tmp_path: Path) -> None:
    """One of them not reduced: its gradient has a value for each of its own."""
    torch.manual_seed(1)
    twin = Losses()
    model = copy.deepcopy(twin)
    samba.from_torch_model_(model)
    batch = {"x": torch.randn(4, 6)}
    prepared = prepare(model, batch, [samba.optim.SGD(model.parameters(), lr=0.1)], tmp_path)
    weights = torch.rand(4, 3)
    prepared.outputs[0].sn_grad = weights
    prepared.outputs[1].sn_grad = torch.tensor(0.5)
    prepared.run(batch, section_types=["FWD", "BCKWD"])
    none, one, _ = twin(**batch)
    for name, gradient in gradients_of(twin, (none * weights).sum() + one * 0.5).items():
        torch.testing.assert_close(prepared.gradients()[name], gradient, **CLOSE)
    with pytest.raises(Exception, match="gradient"):
        prepared.outputs[2].sn_grad = torch.ones(4, 3)
