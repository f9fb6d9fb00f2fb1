"""Dropout: its masks, and training that equals torch when torch is given the same masks."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.program.kinds import SectionType
from samba_onnx.sessions import SambaSession
from tests.training.small import CLOSE
from tests.training.trajectory import Prepared, prepare

RATE, UNITS = 0.25, 64


class Dropping(nn.Module):
    """A layer with dropout, which also shows its mask: that of a second input of ones."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, UNITS)
        self.dropout = nn.Dropout(RATE)
        self.outer = nn.Linear(UNITS, 3)

    def forward(
        self, x: Tensor, label: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        states = torch.tanh(self.inner(x))
        both = torch.cat([states, torch.ones_like(states)], 1)
        both = self.dropout(both) if mask is None else both * mask
        states, shown = both.split(UNITS, 1)
        loss = F.cross_entropy(self.outer(states + 0.5 * shown), label)
        return loss, both / both.detach().where(both != 0, torch.ones_like(both))


def draw() -> dict[str, Tensor]:
    return {"x": torch.randn(16, 8), "label": torch.randint(0, 3, (16,))}


def build(folder: Path) -> tuple[Prepared, Dropping]:
    torch.manual_seed(5)
    model = Dropping().train()
    twin = copy.deepcopy(model)
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return prepare(model, draw(), [optimizer], folder), twin


def test_training_equals_torch_with_the_same_masks(tmp_path: Path) -> None:
    prepared, twin = build(tmp_path)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    masks = []
    for rate in (RATE, RATE, 0.5):
        batch = draw()
        loss, kept = prepared.run(batch, hyperparam_dict={"p": rate})
        mask = kept / (1 - rate)
        optimizer.zero_grad()
        expected, _ = twin(**batch, mask=mask)
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(loss, expected.detach(), **CLOSE)
        for name, parameter in twin.named_parameters():
            torch.testing.assert_close(prepared.gradients()[name], parameter.grad, **CLOSE)
            torch.testing.assert_close(prepared.parameters()[name], parameter.detach(), **CLOSE)
        masks.append(mask != 0)
        # 2048 draws: five standard deviations of a fair one.
        assert abs(float((mask != 0).float().mean()) - (1 - rate)) < 5 * (0.25 / 2048) ** 0.5
    assert not torch.equal(masks[0], masks[1])


def test_masks_are_reproducible_and_vanish(tmp_path: Path, session: SambaSession) -> None:
    prepared, twin = build(tmp_path)
    batch = draw()

    def masks(count: int) -> list[Tensor]:
        return [prepared.run(batch, section_types=["FWD"])[1] != 0 for _ in range(count)]

    session.reset_random_generator()
    first = masks(3)
    assert len({tuple(mask.flatten().tolist()) for mask in first}) == 3
    session.reset_random_generator()
    assert all(torch.equal(a, b) for a, b in zip(first, masks(3), strict=True))
    loss, kept = prepared.run(batch, section_types=["FWD"], train=False)
    torch.testing.assert_close(loss, twin.eval()(**batch)[0].detach(), **CLOSE)
    assert kept.bool().all()
    assert not masks(1)[0].all()  # The rate is what it was.


def test_backward_alone_uses_the_mask_of_forward(tmp_path: Path, session: SambaSession) -> None:
    prepared, twin = build(tmp_path)
    batch = draw()
    _, kept = prepared.run(batch, section_types=["FWD"])
    session.run(section_types=["BCKWD"])
    twin(**batch, mask=kept / (1 - RATE))[0].backward()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(prepared.gradients()[name], parameter.grad, **CLOSE)


@pytest.mark.parametrize("forward", [{"train": False}, {}, {"hyperparam_dict": {"p": 0.9}}])
@pytest.mark.parametrize("backward", [{"train": False}, {}, {"hyperparam_dict": {"p": 0.3}}])
def test_backward_alone_has_the_rates_of_its_forward(
    forward: dict[str, Any], backward: dict[str, Any], tmp_path: Path, session: SambaSession
) -> None:
    """Whatever its own run says: gradients are those of the forward pass that was made."""
    prepared, twin = build(tmp_path)
    batch = draw()
    _, kept = prepared.run(batch, section_types=["FWD"], **forward)
    session.run(section_types=["BCKWD"], **backward)
    rates = forward.get("hyperparam_dict", {"p": RATE})
    rate = rates["p"] if forward.get("train", True) else 0.0
    twin(**batch, mask=kept / (1 - rate))[0].backward()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(prepared.gradients()[name], parameter.grad, **CLOSE)


def test_another_session_with_the_same_seed_draws_the_same_masks(
    tmp_path: Path, session: SambaSession
) -> None:
    made = []
    for seed in (3, 3, 4):
        session.reset()
        prepared, _ = build(tmp_path)
        torch.manual_seed(seed)
        session.reset_random_generator()
        made.append(prepared.run(draw(), section_types=["FWD"])[1] != 0)
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[1], made[2])


class DroppingTwice(nn.Module):
    """Two dropouts, one behind the other, each of which shows its mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, UNITS), nn.Linear(UNITS, UNITS)])
        self.dropouts = nn.ModuleList([nn.Dropout(RATE), nn.Dropout(RATE)])
        self.outer = nn.Linear(UNITS, 3)

    def forward(
        self, x: Tensor, label: Tensor, masks: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, ...]:
        shown = []
        for place, (layer, dropout) in enumerate(zip(self.layers, self.dropouts, strict=True)):
            # Above zero, so that a zero behind the dropout is one that it made.
            states = torch.sigmoid(layer(x))
            x = dropout(states) if masks is None else states * masks[place]
            shown.append((x / states).detach())
        return F.cross_entropy(self.outer(x), label), *shown


@pytest.mark.parametrize("rates", [(0.5, 0.1), (0.0, 0.75), (0.75, 0.0)])
def test_backward_has_the_rates_of_a_forward_that_ran_in_parts(
    rates: tuple[float, float], tmp_path: Path, session: SambaSession
) -> None:
    torch.manual_seed(5)
    model = DroppingTwice().train()
    twin = copy.deepcopy(model)
    samba.from_torch_model_(model)
    batch = draw()
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    prepared = prepare(model, batch, [optimizer], tmp_path, level="o0")
    manifest = session._program.manifest
    sections = [s.id for s in manifest.sections if s.type == SectionType.FWD]
    inputs = [samba.from_torch_tensor(tensor, name=name) for name, tensor in batch.items()]
    # Behind the first dropout.
    drawn = next(argin for argin in manifest.argins if argin.name.endswith("0__dropout__rate"))
    split = sections.index(drawn.stages[0]) + 1
    session.run(inputs, section_ids=sections[:split], hyperparam_dict={"p": rates[0]})
    _, *kept = prepared.run(section_ids=sections[split:], hyperparam_dict={"p": rates[1]})
    session.run(section_types=["BCKWD"], hyperparam_dict={"p": 0.9})
    for mask, rate in zip(kept, rates, strict=True):
        left = mask[mask != 0]
        torch.testing.assert_close(left, torch.full_like(left, 1 / (1 - rate)), **CLOSE)
    twin(**batch, masks=tuple(kept))[0].backward()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(prepared.gradients()[name], parameter.grad, **CLOSE)
