"""Random numbers of Python and numpy in ``forward``, which a compiled graph would draw only once.

What ``random`` or ``numpy.random`` gives while a module is traced is a number like any other: the graph
would have the teacher forcing, the layer drop or the jitter of that one moment in every run.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from torch import nn

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.explanations import user_place
from samba_onnx.export.capture.replacing import replaced

_HARMLESS: Final = frozenset({"get_state", "getstate", "seed", "set_state", "setstate"})
"""Functions of the generators that draw nothing."""

_INSTEAD: Final = (
    "draws random numbers on the host, and a compiled graph would have this one number in every run: "
    "draw it in the training loop and pass it as an input, or use torch's dropout"
)

_SHARED: Final[Mapping[str, Any]] = MappingProxyType(
    {"random": random._inst, "numpy.random": np.random.mtrand._rand}
)
"""The generators behind the functions of a module; each of these is a bound method of one."""


@contextlib.contextmanager
def refused_host_randomness(module: nn.Module) -> Iterator[None]:
    """Refuse what draws from Python's or numpy's generators within the context.

    Args:
        module: What is traced.

    Raises:
        ModelError: Something drew. A function of the two modules is named with the user's line,
            however it was imported; a generator that the module or its file has, by itself.
    """
    # Case 1: functions of the modules, and the names that the files of the user's classes gave them.
    with contextlib.ExitStack() as stack:
        for owner in (random, np.random, *_files(module)):
            # A list, because replacing changes the dictionary.
            for name, function in list(vars(owner).items()):
                called = _drawing(function)
                if called:
                    stack.enter_context(replaced(owner, name, _refusing(called)))
        # Case 2: generators of their own are seen by their state: methods of C cannot be replaced.
        generators = _generators(module)
        before = {name: _state(generator) for name, generator in generators.items()}
        yield
    for name, generator in generators.items():
        if _state(generator) != before[name]:
            raise ModelError(f"{_forward(module)}: {name} {_INSTEAD}")


def _refusing(called: str) -> Callable[..., Any]:
    def refuse(*_arguments: Any, **_keywords: Any) -> None:
        raise ModelError(f"{user_place()}: {called} {_INSTEAD}")

    return refuse


def _drawing(function: Any) -> str | None:
    """Return how a function that draws from a shared generator is called; None for anything else."""
    own, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    home = next((home for home, generator in _SHARED.items() if own is generator), None)
    return None if home is None or name in _HARMLESS else f"{home}.{name}"


def _files(module: nn.Module) -> list[Any]:
    """Return the Python modules in which the classes of a module are written, but torch's own."""
    # Names that a file imported before, as by ``from random import random``, are only found there.
    names = {type(inner).__module__ for inner in module.modules()}
    kept = sorted(name for name in names if name.partition(".")[0] != "torch")
    return [sys.modules[name] for name in kept if name in sys.modules]


def _generators(module: nn.Module) -> dict[str, Any]:
    """Return the generators that a module can reach: its own, its file's, and the shared ones."""
    generators: dict[str, Any] = dict(_SHARED)
    for file in _files(module):
        generators |= {n: v for n, v in vars(file).items() if _is_generator(v)}
    for path, inner in module.named_modules():
        own = {n: v for n, v in vars(inner).items() if _is_generator(v)}
        generators |= {".".join(filter(None, ("self", path, n))): v for n, v in own.items()}
    return generators


def _is_generator(value: Any) -> bool:
    return isinstance(value, (random.Random, np.random.Generator, np.random.RandomState))


def _state(generator: Any) -> str:
    """Return the state of a generator as a text: numpy's are dictionaries with arrays in them."""
    if isinstance(generator, random.Random):
        return str(generator.getstate())
    legacy = isinstance(generator, np.random.RandomState)
    state = generator.get_state(legacy=False) if legacy else generator.bit_generator.state
    # Whole arrays, whatever the user's print options are.
    with np.printoptions(threshold=sys.maxsize):
        return str(state)


def _forward(module: nn.Module) -> str:
    """Return the line on which a module's ``forward`` begins."""
    # A decorator's wrapper would lead to the decorator's file.
    code = inspect.unwrap(type(module).forward).__code__
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"
