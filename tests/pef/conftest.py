"""A small good PEF, written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pef.builders import write_toy


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the toy PEF; tests must not change the file."""
    path = tmp_path_factory.mktemp("toy") / "toy.pef"
    write_toy(path)
    return path
