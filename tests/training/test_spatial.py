"""Spatial mapping: a run of several mini-batches makes the steps that eager torch makes one by one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import (
    GraphMismatchError,
    InputError,
    OutOfDeviceMemoryError,
    ScheduleError,
    UsageError,
)
from samba_onnx.pef.manifest import Cause
from samba_onnx.sessions import SambaSession
from tests.training.small import CLOSE, WIDTH, Classifier, draw

BATCH, BATCHES = 2, 3
SPATIAL = {"mapping": "spatial", "num_spatial_batches": BATCHES}
Parts = dict[str, Tensor]


def mini_batches(whole: Parts) -> list[Parts]:
    """The mini-batches of concatenated inputs, as the vendor's test_spatial slices them."""
    count = len(whole["x"]) // BATCH
    return [
        {name: tensor[at * BATCH : (at + 1) * BATCH] for name, tensor in whole.items()}
        for at in range(count)
    ]


def named(tensors: Parts) -> dict[str, samba.SambaTensor]:
    return {name: samba.SambaTensor(t, name=name, batch_dim=0) for name, t in tensors.items()}


def prepared(
    model: nn.Module, optimizers: Any, folder: Path, **settings: Any
) -> tuple[samba.SambaTensor, ...]:
    """Compile with one mini-batch, and trace with all of them."""
    whole = draw(BATCH * BATCHES)
    config = {**SPATIAL, **settings}
    pef = samba.session.compile(
        model,
        named(mini_batches(whole)[0]),
        optimizers,
        config_dict=config,
        output=folder / "m.pef",
    )
    return samba.utils.trace_graph(model, named(whole), optimizers, pef=pef, mapping="spatial")


def pair() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    twin = Classifier()
    model = copy.deepcopy(twin)
    samba.from_torch_model_(model)
    return model, twin


Make = Callable[[Any, nn.Module], Any]
OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda optim, m: optim.SGD(m.parameters(), lr=0.1),
    "momentum": lambda optim, m: optim.SGD(
        m.parameters(), lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.01
    ),
    "nesterov": lambda optim, m: optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda optim, m: optim.Adam(m.parameters(), lr=0.05, betas=(0.9, 0.99)),
    "AdamW": lambda optim, m: optim.AdamW(
        m.parameters(), lr=0.05, betas=(0.9, 0.99), weight_decay=0.1, amsgrad=True
    ),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_run_makes_as_many_steps_as_it_has_mini_batches(kind: str, tmp_path: Path) -> None:
    model, twin = pair()
    optimizer, eager = OPTIMIZERS[kind](samba.optim, model), OPTIMIZERS[kind](torch.optim, twin)
    outputs = prepared(model, optimizer, tmp_path)
    assert [tuple(one.shape) for one in outputs] == [(BATCHES,), (BATCHES * BATCH, 3)]
    for _ in range(2):
        whole = draw(BATCH * BATCHES)
        losses, logits = samba.session.run(named(whole), outputs)
        for at, batch in enumerate(mini_batches(whole)):
            eager.zero_grad()
            loss, made = twin(**batch)
            loss.backward()
            eager.step()
            rows = samba.to_torch(logits)[at * BATCH : (at + 1) * BATCH]
            torch.testing.assert_close(samba.to_torch(losses)[at], loss.detach(), **CLOSE)
            torch.testing.assert_close(rows, made.detach(), **CLOSE)
    samba.session.to_cpu(model, [optimizer])
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.torch().detach(), theirs.detach(), **CLOSE)
        assert theirs.grad is not None
        torch.testing.assert_close(mine.sn_grad, theirs.grad, **CLOSE)
        if eager.state[theirs]:
            step = eager.state[theirs].get("step", torch.tensor(2.0 * BATCHES))
            assert optimizer.state[mine].get("step", step) == step == 2 * BATCHES


def test_the_norm_of_gradients_is_clipped_for_every_mini_batch(tmp_path: Path) -> None:
    model, twin = pair()
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.05, max_grad_norm=0.1)
    eager = torch.optim.AdamW(twin.parameters(), lr=0.05, betas=(0.9, 0.997), weight_decay=0)
    outputs = prepared(model, optimizer, tmp_path)
    whole = draw(BATCH * BATCHES)
    samba.session.run(named(whole), outputs)
    for batch in mini_batches(whole):
        eager.zero_grad()
        twin(**batch)[0].backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
        eager.step()
    samba.session.to_cpu(model)
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.torch().detach(), theirs.detach(), **CLOSE)


def test_nothing_but_inputs_and_outputs_moves(session: SambaSession, tmp_path: Path) -> None:
    model, _ = pair()
    outputs = prepared(model, samba.optim.AdamW(model.parameters(), lr=0.1), tmp_path)
    session.transfers.reset()
    samba.session.run(named(draw(BATCH * BATCHES)), outputs)
    ledger = session._program.ledger
    assert ledger is not None
    (graph,) = session._program.manifest.graphs
    assert ledger.transfers == graph.run_transfers
    assert {move.cause for move in ledger.transfers} == {Cause.INPUT, Cause.OUTPUT}
    # float32 of 6 columns and int64 labels in; a float32 loss a mini-batch and 3 logits a row out.
    rows = BATCH * BATCHES
    sizes = [4 * rows * WIDTH, 8 * rows, 4 * BATCHES, 4 * rows * 3]
    assert [move.bytes for move in ledger.transfers] == sizes


def test_hyperparameters_persist_and_count_for_all_mini_batches(tmp_path: Path) -> None:
    model, twin = pair()
    outputs = prepared(model, samba.optim.SGD(model.parameters(), lr=0.0), tmp_path)
    whole = draw(BATCH * BATCHES)
    samba.session.run(named(whole), outputs, {"lr": 0.2})
    samba.session.run(named(whole), outputs)
    eager = torch.optim.SGD(twin.parameters(), lr=0.2)
    for batch in mini_batches(whole) * 2:
        eager.zero_grad()
        twin(**batch)[0].backward()
        eager.step()
    samba.session.to_cpu(model)
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.torch().detach(), theirs.detach(), **CLOSE)


def test_gradients_of_outputs_are_given_for_every_mini_batch(tmp_path: Path) -> None:
    model, twin = pair()
    outputs = prepared(model, samba.optim.SGD(model.parameters(), lr=0.1), tmp_path)
    scales = torch.tensor([1.0, 4.0, 0.25])
    outputs[0].sn_grad = scales
    whole = draw(BATCH * BATCHES)
    samba.session.run(named(whole), outputs)
    torch.testing.assert_close(outputs[0].sn_grad, scales, rtol=0, atol=0)
    eager = torch.optim.SGD(twin.parameters(), lr=0.1)
    for batch, scale in zip(mini_batches(whole), scales, strict=True):
        eager.zero_grad()
        twin(**batch)[0].backward(scale)
        eager.step()
    samba.session.to_cpu(model)
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.torch().detach(), theirs.detach(), **CLOSE)


class Noisy(nn.Module):
    """A dropout and a normalization with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop, self.outer = (
            nn.BatchNorm1d(WIDTH),
            nn.Dropout(0.5),
            nn.Linear(WIDTH, 3),
        )

    def forward(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.drop(self.norm(x))
        return nn.functional.cross_entropy(self.outer(hidden), label), hidden


def test_every_mini_batch_is_as_a_run_of_its_own_would_be(
    session: SambaSession, tmp_path: Path
) -> None:
    """Masks of dropouts and running statistics too; torch draws masks of its own."""
    torch.manual_seed(3)
    first = Noisy()
    twin = copy.deepcopy(first)
    samba.from_torch_model_(first)
    samba.from_torch_model_(twin)
    whole = draw(BATCH * BATCHES)
    outputs = prepared(first, samba.optim.AdamW(first.parameters(), lr=0.1), tmp_path)
    losses, hidden = samba.session.run(named(whole), outputs)
    second_losses, _ = samba.session.run(named(whole), outputs)
    samba.session.to_cpu(first)
    session.reset()
    optimizer, batches = samba.optim.AdamW(twin.parameters(), lr=0.1), mini_batches(whole)
    pef = samba.session.compile(twin, named(batches[0]), optimizer, output=tmp_path / "s.pef")
    traced = samba.utils.trace_graph(twin, named(batches[0]), optimizer, pef=pef)
    made = [samba.session.run(named(batch), traced) for batch in batches * 2]
    samba.session.to_cpu(twin)
    singles = torch.stack([samba.to_torch(loss) for loss, _ in made])
    assert torch.equal(torch.cat([samba.to_torch(losses), samba.to_torch(second_losses)]), singles)
    rows = torch.cat([samba.to_torch(one) for _, one in made[:BATCHES]])
    assert torch.equal(samba.to_torch(hidden), rows)
    zeros = [(samba.to_torch(one) == 0) for _, one in made]
    assert not torch.equal(zeros[0], zeros[1])
    for one, other in zip(first.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(samba.to_torch(one), samba.to_torch(other))


@pytest.mark.parametrize("trained", [True, False])
def test_forward_only(trained: bool, tmp_path: Path) -> None:
    model, twin = pair()
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1) if trained else None
    outputs = prepared(model, optimizer, tmp_path)
    whole = draw(BATCH * BATCHES)
    losses, logits = samba.session.run(named(whole), outputs, section_types=["fwd"])
    with torch.no_grad():
        expected = [twin(**batch) for batch in mini_batches(whole)]
    loss, rows = torch.stack([one for one, _ in expected]), torch.cat([one for _, one in expected])
    torch.testing.assert_close(samba.to_torch(losses), loss, **CLOSE)
    torch.testing.assert_close(samba.to_torch(logits), rows, **CLOSE)
    samba.session.to_cpu(model)
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine.torch(), theirs)


def test_inputs_and_outputs_stay_on_the_device(session: SambaSession, tmp_path: Path) -> None:
    model, twin = pair()
    outputs = prepared(model, None, tmp_path)
    whole = draw(BATCH * BATCHES)
    samba.session.run(named(whole), [])
    session.transfers.reset()
    _, logits = samba.session.run(None, outputs)
    ledger = session._program.ledger
    assert ledger is not None
    assert {move.cause for move in ledger.transfers} == {Cause.OUTPUT}
    with torch.no_grad():
        rows = torch.cat([twin(**batch)[1] for batch in mini_batches(whole)])
    torch.testing.assert_close(samba.to_torch(logits), rows, **CLOSE)
    (read,) = samba.session.get_tensors([outputs[1]])
    assert torch.equal(samba.to_torch(read), samba.to_torch(logits))


SELECTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "backward alone": ({"section_types": ["BCKWD"]}, "of the same mini-batch"),
    "optimizer alone": ({"section_types": ["opt"]}, "OPT without BCKWD"),
    "optimizer after forward": ({"section_types": ["FWD", "OPT"]}, "OPT without BCKWD"),
    "from the second call": ({"run_from_call_id": 1}, "of the same mini-batch"),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_selections_that_make_no_sense(name: str, tmp_path: Path) -> None:
    options, message = SELECTIONS[name]
    model, _ = pair()
    outputs = prepared(model, samba.optim.SGD(model.parameters(), lr=0.1), tmp_path)
    inputs = named(draw(BATCH * BATCHES))
    samba.session.run(inputs, outputs)
    with pytest.raises(ScheduleError, match=message):
        samba.session.run(inputs, [], **options)


def test_gradients_of_the_last_mini_batch_without_a_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, twin = pair()
    prepared(model, samba.optim.SGD(model.parameters(), lr=0.1), tmp_path)
    whole = draw(BATCH * BATCHES)
    samba.session.run(named(whole), [], section_types=["FWD", "BCKWD"])
    twin(**mini_batches(whole)[-1])[0].backward()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert theirs.grad is not None
        torch.testing.assert_close(mine.sn_grad, theirs.grad, **CLOSE)
    assert caplog.text.count("only those of the last one count") == 1


def test_a_run_of_another_number_of_rows_is_refused(tmp_path: Path) -> None:
    model, _ = pair()
    outputs = prepared(model, None, tmp_path)
    with pytest.raises(InputError, match=r"\[6, 6\], mini-batches of \[2, 6\] one after the other"):
        samba.session.run(named(draw(BATCH)), outputs)


def test_what_does_not_divide_is_refused_when_it_is_traced(tmp_path: Path) -> None:
    model, _ = pair()
    prepared(model, None, tmp_path)
    with pytest.raises(GraphMismatchError, match=r"takes 3 mini-batches of \[2, 6\] in one tensor"):
        samba.utils.trace_graph(model, named(draw(5)), mapping="spatial")


def test_a_trace_may_be_given_one_mini_batch(tmp_path: Path) -> None:
    model, twin = pair()
    prepared(model, None, tmp_path)
    outputs = samba.utils.trace_graph(model, named(draw(BATCH)))
    whole = draw(BATCH * BATCHES)
    losses, _ = samba.session.run(named(whole), outputs)
    with torch.no_grad():
        expected = torch.stack([twin(**batch)[0] for batch in mini_batches(whole)])
    torch.testing.assert_close(samba.to_torch(losses), expected, **CLOSE)


def test_a_pef_for_section_mapping_is_not_traced_spatially(tmp_path: Path) -> None:
    model, _ = pair()
    path = samba.session.compile(model, named(draw(BATCH)), output=tmp_path / "m.pef")
    with pytest.raises(UsageError, match="was compiled for mapping 'section'"):
        samba.utils.trace_graph(model, named(draw(BATCH)), pef=path, mapping="spatial")


class OnHost(nn.Module):
    """Sorts, which the RDU cannot."""

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        return torch.sort(x, dim=-1)[1] + label[:, None]


class Large(nn.Module):
    """More parameters than any chip has memory for; they have no values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 40_000_000, device="meta")

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        return self.layer(x) + label[:, None]


def test_operators_on_the_cpu_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs all of the model on the RDU"):
        prepared(OnHost(), None, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_batch_along_another_dimension_is_refused(tmp_path: Path) -> None:
    model, _ = pair()
    inputs = named(draw(BATCH))
    inputs["x"] = samba.SambaTensor(torch.zeros(BATCH, WIDTH), name="x", batch_dim=1)
    with pytest.raises(UsageError, match="'x' has batch_dim 1"):
        samba.session.compile(model, inputs, config_dict=SPATIAL, output=tmp_path / "m.pef")


def test_what_does_not_fit_on_the_chip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutOfDeviceMemoryError, match="on the chip at once"):
        samba.session.compile(
            Large(), named(draw(BATCH)), config_dict=SPATIAL, output=tmp_path / "m.pef", check=False
        )
