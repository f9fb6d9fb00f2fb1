"""A session for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from samba_onnx.sessions import SESSION, SambaSession


@pytest.fixture(autouse=True)
def session() -> Iterator[SambaSession]:
    SESSION.reset()
    yield SESSION
    SESSION.reset()
