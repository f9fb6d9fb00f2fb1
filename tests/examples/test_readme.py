"""Every command of the examples' README is run as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.launching import ROOT
from tests.examples.readme import DATA, TEXT, run_section, sections

COMPARED = {
    "Logistic regression": "logreg",
    "Convolutional network": "convnet",
    "Llama on shapes": "llama_training",
    "Several replicas": "replicas",
}
"""Sections whose commands another test runs, to compare what they make with eager torch."""


def test_every_program_has_commands() -> None:
    commands = "\n".join(command for section in sections().values() for command in section)
    run = set(re.findall(r"(?<!--translations )examples[/.](\w+)", commands))
    files = {path.stem for path in (ROOT / "examples").glob("*.py")}
    linked = set(re.findall(r"\]\((\w+)\.py\)", TEXT))
    assert linked == files
    assert run == {name for name in files if "__main__" in program(name)}


def program(name: str) -> str:
    return (ROOT / "examples" / f"{name}.py").read_text()


def test_sections_that_are_compared_are_run() -> None:
    for title, name in COMPARED.items():
        assert title in sections()
        text = (Path(__file__).parent / f"test_{name}.py").read_text()
        assert f'"{title}"' in text
        assert "run_section(" in text


@pytest.mark.parametrize("title", sorted(sections().keys() - COMPARED.keys() - {DATA}))
def test_the_commands_work_as_they_are_printed(title: str, tmp_path: Path) -> None:
    run_section(DATA, tmp_path)
    run_section(title, tmp_path)
