"""The samples of docs/training.md run as printed."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(
        GUIDE.read_text().replace("```\n", "\n"), {}, GUIDE.name, str(GUIDE), 0
    )
    said: list[str] = []
    results = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert results.attempted > 40
    assert not results.failed, "".join(said)
