"""Every program trains as in torch, or is refused with a sentence; none is different in silence."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest
from torch import nn

from docs.generators.training_programs import PAGE, page
from tests.training_programs import regularised
from tests.training_programs.catalogue import CATALOGUE
from tests.training_programs.machines import Device, Machine, Weights, sgd
from tests.training_programs.outcome import Outcome, measure
from tests.training_programs.table import difference, read, write

TABLE = read()


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_program_trains_as_the_table_says(name: str, tmp_path: Path) -> None:
    changes = difference(measure(CATALOGUE[name], tmp_path), TABLE.get(name))
    assert not changes, changes


def test_the_table_has_every_program_and_no_other() -> None:
    assert set(TABLE) == set(CATALOGUE)
    assert len(TABLE) >= 100


def test_every_program_says_what_it_does() -> None:
    for name, program in CATALOGUE.items():
        assert len(inspect.getdoc(program) or "") > 30, name


def test_the_page_is_that_of_the_table() -> None:
    assert PAGE.read_text() == page(TABLE), "python -m docs.generators.training_programs writes it"


KNOWN: set[str] = set()
"""Attributes that ``forward`` writes in every run are frozen at their first values."""


def test_nothing_else_is_different_in_silence() -> None:
    silent = {name for name, outcome in TABLE.items() if outcome.result in ("different", "failed")}
    assert silent == KNOWN


def test_what_is_refused_or_warned_of_has_a_sentence() -> None:
    for name, outcome in TABLE.items():
        if outcome.result in ("refused", "told"):
            assert len(outcome.reason) > 40, name
            # A sentence that does not say where is no help.
            assert "unknown line" not in outcome.reason, name


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    row = Outcome("equal", 1e-7, 2e-7)
    table = {"b": row, "a": Outcome("refused", reason="why")}
    write(table, tmp_path / "t.json")
    assert read(tmp_path / "t.json") == table
    assert not difference(row, dataclasses.replace(row, loss=2e-7))
    assert "python -m tests.training_programs" in difference(row, Outcome("told", reason="why"))


def otherwise(on: Machine) -> Weights:
    """Trains at another rate on the device than in torch."""
    model = regularised.Classifier(nn.Linear(6, 3))
    trainer = on.trainer(model, regularised.batch(), sgd(0.2001 if isinstance(on, Device) else 0.2))
    for _ in range(20):
        on.note(trainer.step(regularised.batch())[0])
    return trainer.weights()


def still(on: Machine) -> Weights:
    """Trains nothing at all."""
    model = regularised.Classifier(nn.Linear(6, 3))
    trainer = on.trainer(model, regularised.batch(), sgd(0.0))
    for _ in range(20):
        on.note(trainer.step(regularised.batch())[0])
    return trainer.weights()


def test_another_rate_by_a_two_thousandth_is_different(tmp_path: Path) -> None:
    assert measure(otherwise, tmp_path).result == "different"


def test_a_program_that_trains_nothing_is_none(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="weights moved by 0"):
        measure(still, tmp_path)
