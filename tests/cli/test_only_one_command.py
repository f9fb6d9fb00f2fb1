"""The options of one command are read where one is named, and those of all where none is."""

from __future__ import annotations

import pytest
import typer

from samba_onnx.cli import application
from samba_onnx.tools import find_tools


def commands(only: str) -> set[str]:
    return set(typer.main.get_command(application.build_application(None, only)).commands)  # type: ignore[attr-defined]


def test_a_command_that_is_named_is_alone() -> None:
    assert commands("analyze") == {"analyze"}


@pytest.mark.parametrize("only", ["", "analyse", "--help"])
def test_without_a_command_there_are_all(only: str) -> None:
    assert commands(only) == set(find_tools())


def test_the_first_argument_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    build = application.build_application

    def noted(markup: object = None, only: str = "") -> typer.Typer:
        asked.append(only)
        return build(None, only)

    monkeypatch.setattr(application, "build_application", noted)
    assert application.run_command(["targets", "--help"]) == 0
    assert asked == ["targets"]
