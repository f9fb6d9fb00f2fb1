"""Every operator that torch tests itself with, in ONNX; the table in docs/ says what is left."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch

from docs.generators import torch_operators
from tests.export.operator_database import MODES, Exporter, borrowing, cases, operators, verdict

SHARDS = 32
STEP = 48
"""One of so many operators is in the default tests."""
Record = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Capture of what cannot be captured warns and logs; results tell."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(before)


def _page() -> str:
    page = torch_operators.PATHS["value"].read_text()
    if torch_operators.read_version(page) != torch.__version__.partition("+")[0]:
        pytest.skip("the table is of another version of torch, whose database differs")
    return page


@pytest.mark.parametrize(
    "step",
    [
        STEP,
        pytest.param(6, marks=pytest.mark.slow),
        pytest.param(1, marks=[pytest.mark.slow, pytest.mark.exhaustive]),
    ],
)
def test_first_samples_of_operators_pass_where_the_table_says_so(
    step: int, record_property: Record
) -> None:
    written = torch_operators.read_first(_page())
    with borrowing(None):
        found = list(torch_operators.first_samples(MODES["value"], step))
    record_property("torch_operators", sum(state == "passes" for _, state, _ in found))
    assert written.keys() == {operator.full_name for operator in operators()}
    assert len(found) == len(operators()[::step])
    known = {name: state.replace("borrowed", "fails") for name, state in written.items()}
    # What passes although the table does not say so yet is no reason to stop.
    lost = [
        f"{name}: {state} {why}, the table: {known[name]}"
        for name, state, why in found
        if state != known[name] == "passes"
    ]
    assert not lost, "run python -m docs.generators.torch_operators\n" + "\n".join(lost)


def test_a_wrong_result_is_noticed() -> None:
    operator = next(one for one in operators() if one.full_name == "sin")
    case = next(cases(operator, torch.float32, 1))
    mode = MODES["value"]
    other = type(mode)(lambda case: [t + 1e-3 for t in mode.expected(case)], mode.model)
    assert verdict(case, mode).passed
    assert verdict(case, other).reason.startswith("wrong: ")


@pytest.mark.exhaustive
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_sample_of_every_operator_is_as_the_table_says(shard: int) -> None:
    page, exporter = _page(), Exporter()
    missing = []
    for operator in operators()[shard::SHARDS]:
        row = torch_operators.run_operator(operator, MODES["value"], exporter)
        cells = row.render().rpartition(" | ")[0]
        if f"\n{cells} | " not in page:
            missing.append(row.render())
    assert not missing, "run python -m docs.generators.torch_operators\n" + "\n".join(missing)
