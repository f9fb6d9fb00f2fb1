"""The network with an operator of its own learns on the device what it learns in torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest


def test_it_learns_what_torch_learns(
    run_here: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    run_here("custom_operators.py")  # which compares every parameter with torch's
    match = re.search(
        r"Loss: (\S+) before, (\S+) after 20 steps; as in torch", capsys.readouterr().out
    )
    assert match is not None
    assert float(match[2]) < float(match[1])
