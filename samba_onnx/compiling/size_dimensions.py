"""Which dimension of a model is meant where the largest size of one is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from samba_onnx.compiling.options import CompileOptions
from samba_onnx.errors import UsageError
from samba_onnx.pef.manifest import Manifest

__all__ = ["FitDimension", "Sizing", "chosen_axes", "onnx_dimension", "sized_options"]

_WORDS: Final = {
    "batch": re.compile(r"batch|^(n|b|bs)$", re.IGNORECASE),
    "seq": re.compile(r"seq|length|token|time|^(l|s|t)$", re.IGNORECASE),
}
"""What models call the dimensions that have a word of their own here."""
_AXIS: Final = re.compile(r"(.+)\[(\d+)\]")


@dataclass(frozen=True)
class FitDimension:
    """A dimension of a model's inputs whose size is varied."""

    text: str
    """What the user called it."""
    name: str
    """The model's name for it; empty where it has none."""
    inputs: tuple[str, ...]
    """Where it occurs, as ``input[axis]``."""
    size: int
    """Its size in the plan that the search begins with."""

    def axes(self) -> dict[str, tuple[int, ...]]:
        """Return the axes by the name of their input."""
        axes: dict[str, tuple[int, ...]] = {}
        for text in self.inputs:
            name, axis = chosen_axes(text)[0]
            axes[name] = (*axes.get(name, ()), axis)
        return axes


@dataclass(frozen=True)
class Sizing:
    """A dimension, and how the model is planned with another size of it."""

    dimension: FitDimension
    plan: Callable[[int], Manifest]
    """Plans the model at a size."""
    most: int | None = None
    """The largest size that the model takes, where it states one."""


def chosen_axes(text: str) -> list[tuple[str, int]]:
    """Return the axes that a text names, as ``x[0]`` or ``ids[1],labels[1]``; none for another text."""
    matches = [_AXIS.fullmatch(part.strip()) for part in text.split(",")]
    return [(match[1], int(match[2])) for match in matches if match] if all(matches) else []


def onnx_dimension(text: str, manifest: Manifest) -> FitDimension:
    """Return the dynamic dimension of an ONNX model that a text means.

    Args:
        text: The model's name of it; ``input[axis]``; ``batch`` or ``seq`` for the only one that may be that.
        manifest: A plan of the model in which every dimension has a size.

    Raises:
        UsageError: All dimensions are static, or it cannot be told which is meant.
    """
    graph = manifest.graphs[0]
    bound = [
        FitDimension(text, each.name, each.inputs, each.size)
        for each in manifest.bound_dimensions
        if each.graph == graph.name
    ]
    if not bound:
        symbols = {symbol.name: symbol for symbol in manifest.symbols}
        shapes = ", ".join(
            f"{graph.model_name(name)} {list(symbols[name].shape or ())}" for name in graph.inputs
        )
        raise UsageError(
            f"--fit {text}: every dimension of {manifest.source.name} is static ({shapes}): export it with "
            "a dynamic dimension (dynamic_shapes, dynamic_axes), or give the PyTorch model"
        )
    axes = [f"{name}[{axis}]" for name, axis in chosen_axes(text)]
    if axes:
        matches = [each for each in bound if not set(axes).isdisjoint(each.inputs)]
    else:
        # Names come before words: a model may call another dimension by one of these words.
        matches = [each for each in bound if each.name == text] or _meant(text, bound)
    if len(matches) != 1:
        known = "; ".join(
            f"{each.name or 'one without a name'} ({', '.join(each.inputs)})" for each in bound
        )
        raise UsageError(
            f"--fit {text}: {'more than one' if matches else 'no'} dynamic dimension may be meant: {known}; "
            f"give its name, or one of its axes, as --fit {bound[0].inputs[0]}"
        )
    return matches[0]


def _meant(text: str, bound: Sequence[FitDimension]) -> list[FitDimension]:
    """Return the dimensions that a word may stand for: by their names, or else by their axes."""
    pattern = _WORDS.get(text)
    if pattern is None:
        return []
    named = [each for each in bound if pattern.search(each.name)]
    if named:
        return named
    # Where no name tells, the first axis is the batch, as exporters and frameworks have it.
    first = [each for each in bound if all(axis.endswith("[0]") for axis in each.inputs)]
    others = [each for each in bound if not any(axis.endswith("[0]") for axis in each.inputs)]
    return first if text == "batch" else others


def sized_options(
    options: CompileOptions, dimension: FitDimension, size: int, manifest: Manifest
) -> CompileOptions:
    """Return options with another size of a dimension.

    Args:
        options: Options in which the dimension may have a size.
        dimension: A dynamic dimension.
        size: Its size.
        manifest: The plan with these options.
    """
    dims, shapes = dict(options.sizes.dims), dict(options.sizes.input_shapes)
    graph = manifest.graphs[0]
    # The shape without a name is that of the first input: sizes below are put into the same one.
    if "" in shapes:
        shapes[graph.model_name(graph.inputs[0])] = shapes.pop("")
    if dimension.name:
        dims[dimension.name] = size
    symbols = {graph.model_name(symbol.name): symbol for symbol in manifest.symbols}
    for name, axes in dimension.axes().items():
        rank = len(symbols[name].whole_shape or ())
        sizes = list(shapes.get(name, (None,) * rank))
        for axis in axes:
            # The name has the size already: stated of the axis as well, it would be there twice.
            sizes[axis] = None if dimension.name else size
        shapes[name] = tuple(sizes)
    return options.replace(dims=dims, input_shapes=shapes)
