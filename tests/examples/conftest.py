"""Programs of ``examples/`` in this process, where a test of milliseconds is enough."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator

import pytest

from samba_onnx.sessions import SESSION
from tests.examples.launching import ROOT
from tests.sambaflow.conftest import sambaflow

__all__ = ["sambaflow"]


@pytest.fixture
def run_here(sambaflow: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Give what runs a program in this process, each time with a session of its own."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    modules = set(sys.modules)

    def run(program: str, *words: object) -> None:
        SESSION.reset()
        path = str(ROOT / "examples" / program)
        monkeypatch.setattr(sys, "argv", [path, *map(str, words)])
        runpy.run_path(path, run_name="__main__")

    yield run
    SESSION.reset()
    helpers = {path.stem for path in (ROOT / "examples").glob("*.py")}
    for name in (set(sys.modules) - modules) & helpers:
        del sys.modules[name]
