"""Gradients of torch's operators in ONNX against autograd; the table in docs/ says what is left."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from docs.generators import torch_gradients
from samba_onnx.errors import ModelError
from samba_onnx.export.programs.training import export_training
from tests.export.gradient_database import (
    gradient_verdict,
    is_counted,
    samples,
    spoiled,
    truth,
)
from tests.export.operator_database import borrowing, operators

SHARDS = 32
EVERY = 48
"""One of so many operators is in the default run."""
COMPLETE, COUNTED = 505, 505
"""Operators that pass with every sample, of those with gradients to compare."""

Record = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Capture of what cannot be captured warns and logs; results tell."""
    before, threads = logging.root.manager.disable, torch.get_num_threads()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(before)
    torch.set_num_threads(threads)


@pytest.fixture
def page() -> str:
    text = torch_gradients.PATH.read_text()
    if f"`torch.testing._internal`, torch {torch.__version__.partition('+')[0]})" not in text:
        pytest.skip("the table is of another version of torch, whose database differs")
    return text


def test_the_table_has_every_operator_and_counts_right(page: str, record_property: Record) -> None:
    rows = torch_gradients.read(page)
    assert [row.name for row in rows] == sorted(o.full_name for o in torch_gradients.candidates())
    assert torch_gradients.summary(rows) in page
    known = [row for row in rows if row.ran]
    complete = [row for row in known if row.passed == row.ran]
    record_property("torch_operator_gradients", len(complete))
    print(torch_gradients.summary(rows))
    assert (len(complete), len(known)) == (COMPLETE, COUNTED)
    training = torch_gradients.PATH.with_name("training.md").read_text()
    assert f"{COMPLETE} of {COUNTED} have torch's gradients" in training


def test_first_samples_have_the_gradients_of_autograd(page: str) -> None:
    known = {row.name: row for row in torch_gradients.read(page)}
    chosen = [one for one in torch_gradients.candidates() if known[one.full_name].first == "passes"]
    failed = []
    with borrowing(None):
        for operator in chosen[::EVERY]:
            found = gradient_verdict(next(samples(operator, 1)))
            if not found.passed:
                failed.append(f"{operator.full_name}: {found.reason}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("name", ["cumprod", "nn.functional.linear", "sort"])
def test_a_wrong_gradient_is_noticed(name: str) -> None:
    operator = next(one for one in operators() if one.full_name == name)
    sample = next(samples(operator, 1))
    assert gradient_verdict(sample).passed
    found = gradient_verdict(sample, expected=lambda one, dtype: truth(spoiled(one), dtype))
    assert found.reason.startswith("wrong: ")
    assert is_counted(found)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_sample_of_every_operator_is_as_the_table_says(shard: int, page: str) -> None:
    rows = map(torch_gradients.run_operator, torch_gradients.candidates()[shard::SHARDS])
    missing = [row.render() for row in rows if f"\n{row.cells} " not in page]
    assert not missing, "run python -m docs.generators.torch_gradients\n" + "\n".join(missing)


def test_a_gradient_that_needs_what_only_torch_computes_is_refused() -> None:
    class Determinant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.eye(3))

        def forward(self) -> Tensor:
            return torch._linalg_det(self.matrix)[0]

    with pytest.raises(ModelError, match=r"_linalg_det.*test_operator_gradients.py:\d+ cannot be"):
        export_training(Determinant(), ())
