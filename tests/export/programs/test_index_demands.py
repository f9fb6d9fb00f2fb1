"""Labels and indices out of range: a run refuses what torch refuses, and takes what torch takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.compiling.compiler import ProgramSource, compile_programs
from samba_onnx.errors import InputError
from samba_onnx.export.programs.inference import inference_program
from samba_onnx.export.programs.training import export_training
from samba_onnx.program.index_demands import IndexDemand
from samba_onnx.runtime.device import Device

Use = Callable[[Tensor, Tensor], Tensor]

SIZE, COUNT = 5, 4
NUMBERS = (SIZE, -1, -SIZE, -SIZE - 1, -100)
TABLE = torch.linspace(-2, 3, SIZE * 3).reshape(SIZE, 3).sin()
ONES = torch.ones(COUNT, 3)


def _columns(ids: Tensor) -> Tensor:
    return ids.reshape(-1, 1).expand(-1, 3)


def _logits(table: Tensor) -> Tensor:
    return table.T[:1].expand(COUNT, SIZE).tanh()


USES: dict[str, Use] = {
    "cross_entropy": lambda t, i: functional.cross_entropy(_logits(t), i),
    "cross_entropy, smooth": lambda t, i: functional.cross_entropy(
        _logits(t), i, label_smoothing=0.1
    ),
    "cross_entropy, ignoring -1": lambda t, i: functional.cross_entropy(
        _logits(t), i, ignore_index=-1
    ),
    "cross_entropy of pixels": lambda t, i: functional.cross_entropy(
        _logits(t).reshape(1, COUNT, SIZE).mT, i.reshape(1, COUNT)
    ),
    "embedding": lambda t, i: functional.embedding(i, t),
    "embedding behind views": lambda t, i: functional.embedding(
        i.reshape(2, 2).T.contiguous().to(torch.int32)[None], t
    ),
    "embedding_bag": lambda t, i: functional.embedding_bag(i.reshape(2, 2), t),
    "gather": lambda t, i: torch.gather(t, 0, _columns(i)),
    "index_add": lambda t, i: t.index_add(0, i, ONES),
    "index_copy": lambda t, i: t.index_copy(0, i, ONES),
    "index_fill": lambda t, i: t.index_fill(0, i, 1.0),
    "index_put": lambda t, i: t.index_put((i,), ONES),
    "index_select": lambda t, i: t.index_select(0, i),
    "multi_margin_loss": lambda t, i: functional.multi_margin_loss(_logits(t), i),
    "multilabel_margin_loss": lambda t, i: functional.multilabel_margin_loss(t[:COUNT, 0], i),
    "nll_loss": lambda t, i: functional.nll_loss(_logits(t), i),
    "one_hot": lambda t, i: functional.one_hot(i, SIZE).float() @ t,
    "scatter": lambda t, i: t.scatter(0, _columns(i), 1.0),
    "scatter_add": lambda t, i: t.scatter_add(0, _columns(i), ONES),
    "subscript": lambda t, i: t[i],
    "subscript of columns": lambda t, i: t.T[:, i],
    "take": lambda t, i: torch.take(t[:, 0], i),
    "take_along_dim": lambda t, i: torch.take_along_dim(t, i.reshape(-1, 1), 0),
    "without the first": lambda t, i: functional.embedding(i[1:], t),
    "of the first row": lambda t, i: functional.embedding(i.reshape(2, 2)[0], t),
    "shifted labels": lambda t, i: functional.cross_entropy(
        _logits(t), functional.pad(i[None], (0, 1), value=-100)[:, 1:].reshape(-1)
    ),
    "masked": lambda t, i: functional.embedding(i.clamp(0, SIZE - 1), t),
    "two uses": lambda t, i: t[i].sum() + functional.embedding(i[2:], t).sum(),
}


class Looked(nn.Module):
    def __init__(self, use: Use) -> None:
        super().__init__()
        self.register_buffer("table", TABLE.clone())
        self.use = use

    def forward(self, ids: Tensor) -> Tensor:
        assert isinstance(self.table, Tensor)
        return self.use(self.table, ids)


@contextlib.contextmanager
def device_of(use: Use, path: Path) -> Iterator[Device]:
    program = inference_program(Looked(use), (torch.tensor([0, 1, 2, 1]),))
    residents = tuple(program.residents)
    with (
        compile_programs(ProgramSource([program], "model"), path / "model.pef") as pef,
        Device(pef) as device,
    ):
        device.load(dict.fromkeys(residents, TABLE.numpy()))
        yield device


@pytest.mark.parametrize("name", USES)
def test_a_run_refuses_what_torch_refuses(name: str, tmp_path: Path) -> None:
    use = USES[name]
    with device_of(use, tmp_path) as device:
        for place in range(COUNT):
            for number in NUMBERS:
                ids = torch.tensor([0, 1, 2, 1])
                ids[place] = number
                try:
                    expected = use(TABLE, ids)
                except (IndexError, RuntimeError):
                    with pytest.raises(InputError, match=rf"input 'ids' holds {number}, which"):
                        device.run({"ids": ids.numpy()})
                    continue
                (result,) = device.run({"ids": ids.numpy()}).values()
                np.testing.assert_allclose(result, expected.numpy(), rtol=2e-6, atol=1e-6)


def test_a_prepared_run_checks_every_batch(tmp_path: Path) -> None:
    with device_of(USES["nll_loss"], tmp_path) as device:
        labels = np.array([0, -100, 2, 4])
        for _ in range(3):  # the third is a replay
            device.run({"ids": labels})
        for wrong in (-1, 5):
            with pytest.raises(InputError, match=rf"holds {wrong}, which nll_loss does not take"):
                device.run({"ids": np.array([0, wrong, 2, 4])})
        with pytest.raises(InputError, match="holds -7, and 1 more such"):
            device.run({"ids": np.array([-7, 9, 2, 4], dtype=np.int16)})
        device.run({"ids": labels})


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.linear = nn.Linear(4, 3)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        logits = self.linear(self.embedding(ids))
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].reshape(-1))


def test_training_programs_demand_the_same() -> None:
    exported = export_training(Trained(), (torch.ones(2, 5).long(), torch.ones(2, 5).long()))
    assert exported.program.index_demands == (
        IndexDemand("ids", "embedding", 0, 6),
        IndexDemand("labels", "cross_entropy", 0, 2, (-100,), ((0, 2), (1, 5))),
    )


def test_what_is_computed_of_an_input_is_not_followed() -> None:
    def use(table: Tensor, ids: Tensor) -> Tensor:
        return functional.embedding(ids + 1, table)

    assert not inference_program(Looked(use), (torch.zeros(2, dtype=torch.int64),)).index_demands


def test_a_narrowing_conversion_is_not_followed() -> None:
    """256 is 0 in eight bits, which torch takes."""

    def use(table: Tensor, ids: Tensor) -> Tensor:
        return functional.embedding(ids.to(torch.int8).long(), table)

    assert not inference_program(Looked(use), (torch.zeros(2, dtype=torch.int64),)).index_demands
