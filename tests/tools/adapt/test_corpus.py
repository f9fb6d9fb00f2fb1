"""Programs as people write them: what becomes of each, and whether it computes the same."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("libcst")
pytest.importorskip("torch")

from docs.generators.adapt_patterns import PAGE, adapt_page, adapted_programs
from samba_onnx.tools.adapt.adapting import adapt_source
from samba_onnx.tools.adapt.pattern_table import ADAPTED as ADAPTED_PATTERNS
from samba_onnx.tools.adapt.pattern_table import OPEN
from samba_onnx.tools.adapt.source import ProgramFile
from tests.cli.conftest import SambaPort
from tests.tools.adapt.expected import (
    ADAPTED,
    ALREADY,
    CORPUS,
    FOLDERS,
    PROGRAMS,
    REFUSED,
    UNUSED_STEPS,
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_becomes_of_a_program(name: str) -> None:
    adapted = adapted_programs()[name]
    assert adapted.is_already == (name in ALREADY)
    assert {point.pattern for point in adapted.blocking} == {*filter(None, [REFUSED.get(name)])}
    if name not in ADAPTED:
        return
    assert any("sambaflow.samba" in file.text for file in adapted.changed)
    for file in adapted.files:
        ast.parse(file.text)
        for word in (".backward(", ".cuda(", ".to(device)", "zero_grad("):
            # What is left of them is in text that people read, and in functions that nobody calls.
            lines = [line for line in file.text.splitlines() if word in line and "#" not in line]
            assert lines == [] or name in UNUSED_STEPS, word
    # Adapted twice is adapted once.
    first = next(file for file in adapted.changed if "sambaflow.samba" in file.text)
    again = adapt_source(ProgramFile(first.path, first.text))
    assert (again.is_already, again.text) == (True, first.text)


def test_every_pattern_is_in_the_tables() -> None:
    programs = adapted_programs().values()
    changes = {change.pattern for one in programs for change in one.changes}
    points = {point.pattern for one in programs for point in one.points}
    assert changes <= ADAPTED_PATTERNS.keys()
    assert points <= OPEN.keys()


def test_the_page_is_that_of_the_corpus() -> None:
    refresh = "python -m docs.generators.adapt_patterns"
    assert PAGE.read_text() == adapt_page(), f"refresh it: {refresh}"


def _checks(samba_port: SambaPort, folder: Path, name: str) -> None:
    # Some programs save a checkpoint where they are run.
    for begin, library in (
        ("accelerate", "accelerate"),
        ("fire", "fire"),
        ("huggingface", "accelerate"),
        ("lightning", "pytorch_lightning"),
    ):
        if name.startswith(begin):
            pytest.importorskip(library)
    if name in FOLDERS:
        program = (
            shutil.copytree(CORPUS / name.partition("/")[0], folder / "program") / Path(name).name
        )
    else:
        program = shutil.copy(CORPUS / name, folder)
    report = folder / "adapt.json"
    result = samba_port("adapt", program, "--check", "20", "--json", report)
    assert result.status == 0, result.out + result.err
    document = json.loads(report.read_text())
    assert document["check"]["agrees"]
    assert document["check"]["printed_differences"] == []
    assert document["compiled"]["rdu_nodes"] > 0


def test_a_program_computes_the_same(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _checks(samba_port, tmp_path, "trainer_class.py")


def test_a_program_of_several_files_computes_the_same(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _checks(samba_port, tmp_path, "package_engine/main.py")


@pytest.mark.parametrize("name", ADAPTED)
def test_every_program_computes_the_same(
    samba_port: SambaPort, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _checks(samba_port, tmp_path, name)
