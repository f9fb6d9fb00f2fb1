"""The smallest part of a model that a PEF computes differently: ``samba-port reduce``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx

from samba_onnx.comparing.both_sides import plain_engine
from samba_onnx.comparing.compared_values import ComparedValue, ValueComparison
from samba_onnx.comparing.reduction import Reducer, Reduction, RefusedByEngineError, Results
from samba_onnx.comparing.rounding_depth import rounding_depth
from samba_onnx.comparing.value_comparison import compare_values
from samba_onnx.compiling.compiler import convert
from samba_onnx.compiling.planning import Progress
from samba_onnx.errors import ExecutionError, ModelLimitError
from samba_onnx.loading import load_model
from samba_onnx.passes.targets import Target, load_target
from samba_onnx.pef import Pef
from samba_onnx.runtime.device import Device
from samba_onnx.safety.leftovers import temporary_folder

MOST_BYTES: Final = 1 << 30
"""Weights that are held in memory; a larger model has to be cut by hand first."""


@dataclass(frozen=True)
class PefReduction:
    """What a PEF that disagrees was reduced to."""

    comparison: ValueComparison
    """All values, from which the search began."""
    reduction: Reduction | None
    """The part; None where all values agree."""
    converts_wrongly: bool
    """Whether converting the part again gives the fault. Otherwise the fault is in this PEF, or of
    another version of the compiler, and the part is what lies between the first wrong value and the
    nearest ones that agree."""


def reduce_pef(
    model: str | os.PathLike[str],
    pef: Pef,
    *,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    target: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> PefReduction:
    """Find the smallest part of a model that its PEF computes differently.

    Args:
        model: Path of the original.
        pef: The PEF that it was converted to, open.
        inputs: Arrays by the names of the model's inputs; seeded random ones where None.
        seed: Seed of the random inputs.
        target: The device for which parts are converted; that of the PEF by its name where None.
        threads: Threads within operators; all cores where None.
        progress: Called with the name of each step before it begins.

    Returns:
        The part, or that there is none.

    Raises:
        ModelError: The original cannot be used, or is too large.
        PefError: The PEF cannot be used.
        TargetError: There is no such target.
        UsageError: The PEF is not of this model.
        ExecutionError: The engine fails on one of them.
    """
    report = progress or (lambda _: None)
    report("compare")
    wrong = _FirstWrong()
    comparison = compare_values(
        model, pef, inputs=inputs, seed=seed, threads=threads, look=wrong.look
    )
    if comparison.first is None:
        return PefReduction(comparison, None, False)
    converter = _Converter.like(pef, target)
    report("run the original")
    loaded = load_model(model)
    proto, depth = _whole(loaded.source(model)), rounding_depth(loaded.model)
    reducer = Reducer(proto, comparison.feeds, plain_engine(threads), converter.recompute, depth)
    report("reduce")
    agreeing = {value.name for value in comparison.values if value.passed}
    between = reducer.between(comparison.first.name, agreeing)
    again = reducer.reduce(between)
    reduction = again or reducer.with_values(between, wrong.actual, depth)
    return PefReduction(comparison, reduction, again is not None)


class _FirstWrong:
    """Keeps what the PEF computes for the first wrong value, in the order of the original."""

    def __init__(self) -> None:
        self._position: int | None = None
        self.actual: dict[str, Any] = {}

    def look(self, value: ComparedValue, actual: Any) -> None:
        if not value.passed and (self._position is None or value.position < self._position):
            self._position, self.actual = value.position, {value.name: actual}


@dataclass(frozen=True)
class _Converter:
    """Converts parts as the PEF was, and runs them on the device."""

    target: Target
    level: str
    fixed: frozenset[str] = frozenset()
    """Inputs that the PEF has as constants."""

    @classmethod
    def like(cls, pef: Pef, target: str | os.PathLike[str] | None) -> _Converter:
        manifest = pef.manifest
        fixed = frozenset(fixed_input.name for fixed_input in manifest.fixed_inputs)
        return cls(load_target(target or manifest.target.name), manifest.level, fixed)

    def recompute(self, part: onnx.ModelProto, feeds: Results) -> Results:
        inputs = {value.name for value in part.graph.input}
        constants = {name: feeds[name] for name in self.fixed & inputs}
        given = {name: value for name, value in feeds.items() if name not in constants}
        with temporary_folder("port") as folder:
            options: dict[str, Any] = {"target": self.target, "level": self.level}
            options["constants"] = constants
            with convert(part, Path(folder) / "part.pef", sample=False, **options) as pef:
                try:
                    with Device(pef) as device:
                        return device.run(given)
                except ExecutionError as error:
                    raise RefusedByEngineError(str(error)) from None


def _whole(source: Path | onnx.ModelProto) -> onnx.ModelProto:
    """Return the original with its weights inside.

    Raises:
        ModelLimitError: They are too large.
        UsageError: The files beside it are gone.
    """
    if isinstance(source, onnx.ModelProto):
        return source
    proto = onnx.load(source, load_external_data=False)
    folder = str(source.absolute().parent)
    size = source.stat().st_size + sum(
        int(entry.value)
        for tensor in proto.graph.initializer
        for entry in tensor.external_data
        if entry.key == "length"
    )
    if size > MOST_BYTES:
        raise ModelLimitError(
            f"{source}: has {size / 1e9:.1f} GB of weights; a model of up to "
            f"{MOST_BYTES / 1e9:.1f} GB can be reduced"
        )
    onnx.external_data_helper.load_external_data_for_model(proto, folder)
    return proto
