"""Fixtures of the model tests, the only tests that may import torch."""

from collections.abc import Iterator

import pytest
import torch

from models import MODELS


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=list(MODELS))
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen
