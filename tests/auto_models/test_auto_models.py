"""Every class of ``AutoModel`` converts as its users have it, or is refused with a sentence."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest
import transformers

from docs.generators.auto_models import PAGE, page
from tests.auto_models.catalogue import REPRESENTATIVES
from tests.auto_models.outcome import Outcome, measure
from tests.auto_models.table import difference, read, write
from tests.versions import needs

TABLE = read()


@pytest.mark.parametrize("name", sorted(REPRESENTATIVES))
def test_a_model_converts_as_the_table_says(name: str, tmp_path: Path) -> None:
    changes = difference(measure(REPRESENTATIVES[name], tmp_path), TABLE.get(name))
    assert not changes, changes


def test_the_table_has_every_model_and_no_other() -> None:
    assert set(TABLE) == set(REPRESENTATIVES)


@needs("transformers", "5.23")  # older ones have fewer
def test_every_class_has_a_model() -> None:
    module = transformers.models.auto.modeling_auto
    base = transformers.models.auto.auto_factory._BaseAutoModelClass
    classes = {
        name
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, base) and kind.__module__ == module.__name__
    }
    assert len(classes) >= 40
    assert {one.auto for one in REPRESENTATIVES.values()} == classes - {base.__name__}


def test_what_converts_computes_what_torch_computes() -> None:
    wrong = {name for name, outcome in TABLE.items() if outcome.converts and not outcome.agrees}
    assert not wrong


def test_what_does_not_convert_has_a_sentence() -> None:
    for name, outcome in TABLE.items():
        assert outcome.converts or len(outcome.reason) > 40, name


@needs("transformers", "5.23")  # which it names
def test_the_page_is_that_of_the_table() -> None:
    assert PAGE.read_text() == page(TABLE), "python -m docs.generators.auto_models writes it"


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    row = Outcome(True, True, 1e-7, "DynamicCache", {"TopK": 2})
    table = {"b": row, "a": Outcome(False, reason="why")}
    write(table, tmp_path / "t.json")
    assert read(tmp_path / "t.json") == table
    assert not difference(row, dataclasses.replace(row, error=2e-7))
    for field, value in (("agrees", False), ("left_out", ""), ("fallbacks", {})):
        assert "python -m tests.auto_models" in difference(
            row, dataclasses.replace(row, **{field: value})
        )
