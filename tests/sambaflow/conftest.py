"""``import sambaflow`` for the length of one test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from samba_onnx.sambaflow import install


@pytest.fixture
def sambaflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install it, and leave neither finder nor modules behind."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    assert install()
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "sambaflow"]:
        del sys.modules[name]
