"""One model of the table: the tool that writes it, and what it is compiled and verified with."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Build = Callable[[], onnx.ModelProto]
"""Writes a model with its tool; always the same one."""


@dataclass(frozen=True)
class Subject:
    """One model as a tool writes it."""

    name: str
    """``tool/model-options``."""
    build: Build
    dims: Mapping[str, int] = field(default_factory=dict)
    """Sizes of dynamic dimensions, as a user would give them; others become 1."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of inputs whose dynamic dimensions have no name."""
    inputs: Callable[[], dict[str, Any]] | None = None
    """Inputs to verify with, where random numbers are not what the model is for, as texts."""

    @property
    def tool(self) -> str:
        """What writes the model."""
        return self.name.partition("/")[0]


class Subjects:
    """The subjects of one tool, entered by their builders."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.entries: list[Subject] = []

    def add(
        self,
        name: str,
        build: Build,
        *,
        dims: Mapping[str, int] | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        inputs: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        """Enter a subject.

        Args:
            name: Of the model and the tool's options.
            build: Writes the model.
            dims: Sizes of dynamic dimensions.
            shapes: Shapes of inputs.
            inputs: Inputs to verify with.
        """
        seeded = functools.partial(_seeded, build)
        self.entries.append(
            Subject(f"{self.tool}/{name}", seeded, dims or {}, shapes or {}, inputs)
        )


def _seeded(build: Build) -> onnx.ModelProto:
    """Write a model without what its tool says of itself, and with the same random numbers."""
    random.seed(0)
    np.random.seed(0)
    with quiet():
        return build()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings, loggers and what tools print."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def written_by(tool: Callable[[Path], object]) -> onnx.ModelProto:
    """Return what a tool writes into a file.

    Args:
        tool: Called with the path.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        tool(path)
        return onnx.load(path)


def rewritten_by(model: onnx.ModelProto, tool: Callable[[Path, Path], object]) -> onnx.ModelProto:
    """Return what a tool writes that reads a file and writes another one.

    Args:
        model: What it reads.
        tool: Called with both paths.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "original.onnx"
        onnx.save(model, source)
        return written_by(lambda path: tool(source, path))
