"""Inputs of a check's own, where those that a module was exported with carry no meaning.

Inputs say which sizes and types a program has; many programs compile with zeros, with memory that was
never written, or with indices of no table. A check on such values proves nothing, or cannot be done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from samba_onnx.comparing.eager.torch_runs import TorchRuns
from samba_onnx.comparing.outcome import NotComparableError, own_values
from samba_onnx.export.capture.branches import missing_values
from samba_onnx.export.programs.inference import Exported
from samba_onnx.program.index_ranges import IndexRange, index_ranges
from samba_onnx.tensor import SambaTensor

__all__ = ["Fitting", "fitting_runs", "is_meaningless"]

_LARGEST: Final = 1e15
"""Numbers above it are what memory held that nobody wrote; large negative ones are masks."""


@dataclass(frozen=True)
class Fitting:
    """Runs of a module in torch on inputs that it takes."""

    runs: TorchRuns
    replaced: tuple[str, ...]
    """Names of the inputs that have other values than those that the program was exported with."""

    @property
    def condition(self) -> str:
        """How a note says so; empty if nothing was replaced."""
        return own_values(self.replaced)


class _Trial(Enum):
    """Which inputs get other values; tried in this order until the module takes them."""

    GIVEN = "what has no values, or none that anything can be computed with"
    FITTING = "and integers that are no legal index"
    ONES = "and all other integers, which are 1: lengths and counts"
    OFFSETS = "and all other integers, which are 0 and 1, rising: places where something begins"


def fitting_runs(
    module: nn.Module,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    exported: Exported,
    *,
    trains: bool,
) -> Fitting:
    """Return runs of a module in torch, on the inputs that it was exported with as far as they fit.

    Args:
        module: With values of all its parameters.
        args: Positional arguments that it was exported with.
        keywords: Keyword arguments.
        exported: What it was exported to. Where what it does depends on values of tensors, inputs
            stay as they are: with others it might do something else.
        trains: Whether gradients are computed.

    Raises:
        NotComparableError: A parameter has no values, or the module fails on all inputs that are
            tried; the reason is that of the first.
    """
    missing = missing_values(module, ())
    if missing:
        raise NotComparableError(missing)
    first: NotComparableError | None = None
    for replaced, (positional, named) in _trials(args, keywords, exported):
        runs = TorchRuns(module, positional, named, exported, trains)
        try:
            _ = runs.native
        except NotComparableError as obstacle:
            first = first or obstacle
        else:
            return Fitting(runs, replaced)
    assert first is not None
    raise first


def _trials(
    args: tuple[Any, ...], keywords: Mapping[str, Any], exported: Exported
) -> Iterator[tuple[tuple[str, ...], tuple[tuple[Any, ...], dict[str, Any]]]]:
    """Yield the names of the inputs that were replaced, and all inputs; each choice once."""
    leaves, structure = pytree.tree_flatten((args, dict(keywords)))
    if exported.captured.is_specialised:
        yield (), (args, dict(keywords))
        return
    names = {place: name for name, place in exported.inputs.items()}
    ranges = index_ranges(exported.program, from_end=False)
    earlier: list[set[int]] = []
    for trial in _Trial:
        drawn: dict[int, Tensor] = {}  # by identity: one tensor may be given for several arguments
        replaced: list[str] = []
        chosen = set[int]()
        values = list(leaves)
        for place, leaf in enumerate(leaves):
            legal = ranges.get(names.get(place, ""))
            if not isinstance(leaf, Tensor) or not _is_replaced(leaf, legal, trial):
                continue
            if id(leaf) not in drawn:
                drawn[id(leaf)] = _drawn(leaf, legal, place, trial)
            values[place] = drawn[id(leaf)]
            chosen.add(place)
            replaced += [names[place]] if place in names else []
        if chosen not in earlier or (chosen and trial is _Trial.OFFSETS):
            earlier.append(chosen)
            yield tuple(replaced), pytree.tree_unflatten(values, structure)


def _is_replaced(leaf: Tensor, legal: IndexRange | None, trial: _Trial) -> bool:
    if leaf.is_meta or (isinstance(leaf, SambaTensor) and not leaf.has_data):
        return True
    plain = leaf.torch_tensor() if isinstance(leaf, SambaTensor) else leaf
    if plain.is_floating_point():
        return is_meaningless(plain.detach().double().numpy())
    if plain.is_complex() or plain.dtype is torch.bool:
        return False
    if trial is _Trial.GIVEN or not plain.numel():
        return False
    if legal is None:
        return trial is not _Trial.FITTING
    return int(plain.min()) < legal.lowest or int(plain.max()) > legal.highest


def is_meaningless(values: NDArray[Any]) -> bool:
    """Return whether floating-point numbers are such as nobody computes with: NaN, or garbage.

    Args:
        values: An input of any type.
    """
    if values.dtype.kind not in "fV" or not values.size:
        return False
    numbers = values.astype(np.float64)
    return bool(np.isnan(numbers).any()) or float(numbers.max()) > _LARGEST


def _drawn(leaf: Tensor, legal: IndexRange | None, place: int, trial: _Trial) -> Tensor:
    """Return values of an input's size and type that fit."""
    shape, generator = tuple(leaf.shape), np.random.default_rng([0, place])
    values: Any
    if leaf.dtype is torch.bool:
        values = generator.integers(0, 2, shape)
    elif leaf.is_floating_point() or leaf.is_complex():
        values = generator.standard_normal(shape)
    elif legal is not None:
        values = legal.draw(shape, generator)
    elif trial is _Trial.OFFSETS:
        values = np.arange(int(np.prod(shape, dtype=int))).reshape(shape).clip(max=1)
    else:
        values = np.ones(shape)
    return torch.from_numpy(np.asarray(values)).to(leaf.dtype)
