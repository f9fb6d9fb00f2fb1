"""Numbers of Python's and numpy's generators in ``forward``: refused with the user's line."""

from __future__ import annotations

import random
from collections.abc import Callable
from random import random as drawn
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import uniform
from torch import Tensor, nn

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.captured_modules import export_module

OWN = random.Random(0)
VALUE = torch.ones(3)
HERE = r"test_host_randomness\.py:\d+"


class Calling(nn.Module):
    """Multiplies by what a function gives, while it trains."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.generator = np.random.default_rng(0)
        self.source = random.Random(0)

    def forward(self, value: Tensor) -> Tensor:
        return value * self.function(self) if self.training else value


def shuffled(_: Any) -> int:
    order = [1, 2, 3]
    random.shuffle(order)
    return order[0]


DRAWS = {
    "random.random": lambda _: random.random(),
    "random.uniform": lambda _: random.uniform(0, 1),
    "random.randint": lambda _: random.randint(0, 9),
    "random.choice": lambda _: random.choice([1, 2, 3]),
    "random.shuffle": shuffled,
    "random.gauss": lambda _: random.gauss(0, 1),
    "numpy.random.rand": lambda _: np.random.rand(),
    "numpy.random.normal": lambda _: float(np.random.normal()),
    "numpy.random.randint": lambda _: int(np.random.randint(0, 9)),
    "numpy.random.permutation": lambda _: int(np.random.permutation(3)[0]),
}


@pytest.mark.parametrize("name", DRAWS)
def test_functions_of_the_modules_are_named_with_their_line(name: str) -> None:
    with pytest.raises(ModelError, match=rf"{HERE}: {name} draws random numbers on the host"):
        export_module(Calling(DRAWS[name]), (VALUE,), {})


@pytest.mark.parametrize(
    ("function", "name"),
    [(lambda _: drawn(), r"random\.random"), (lambda _: uniform(), r"numpy\.random\.uniform")],
)
def test_functions_that_were_imported_by_name(function: Callable[[Any], Any], name: str) -> None:
    with pytest.raises(ModelError, match=rf"{HERE}: {name} draws"):
        export_module(Calling(function), (VALUE,), {})


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda self: float(self.generator.normal()), r"self\.generator"),
        (lambda self: self.source.random(), r"self\.source"),
        (lambda _: OWN.random(), "OWN"),
    ],
)
def test_generators_of_the_module_and_of_its_file(
    function: Callable[[Any], Any], name: str
) -> None:
    with pytest.raises(ModelError, match=rf"{HERE}: {name} draws"):
        export_module(Calling(function), (VALUE,), {})


def test_what_draws_nothing_is_traced_and_all_is_put_back() -> None:
    before = random.random, np.random.rand, drawn
    state = random.getstate()
    for function in (
        lambda _: 2,
        lambda _: random.Random(0).random(),
        lambda _: random.getstate()[0],
    ):
        export_module(Calling(function), (VALUE,), {})
    export_module(Calling(lambda _: random.random()).eval(), (VALUE,), {})
    with pytest.raises(ModelError):
        export_module(Calling(lambda _: random.random()), (VALUE,), {})
    assert (random.random, np.random.rand, drawn) == before
    assert random.getstate() == state
