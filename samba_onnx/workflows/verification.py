"""Do the numbers hold? A PEF on the emulator against something it was not made by.

Two comparisons: against the original model on the same engine (:func:`verify`), and against the
reference sample that the compiler put into the PEF (:func:`self_test`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from samba_onnx.errors import UsageError
from samba_onnx.facts.tolerances import OUTPUT, output_tolerance
from samba_onnx.loading import load_model
from samba_onnx.pef import Pef, load_pef
from samba_onnx.runtime.engine.registry import DEFAULT_ENGINE
from samba_onnx.safety.sample_inputs import random_inputs

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class OutputComparison:
    """How far one output is from what was expected."""

    name: str
    type: str
    """The numpy dtype, as ``float32``."""
    shape: tuple[int, ...]
    max_absolute_error: float
    """Zero for exact types that agree; infinite where shapes or types differ."""
    max_relative_error: float
    """Largest error divided by the largest expected magnitude."""
    mismatched: int
    """Elements beyond the tolerance."""
    elements: int
    passed: bool


@dataclass(frozen=True)
class Verification:
    """The comparison of all outputs."""

    against: str
    """``original`` (the model itself) or ``sample`` (the reference inside the PEF)."""
    outputs: tuple[OutputComparison, ...]
    """One per output, in the graph's order."""
    rtol: float
    """Relative tolerance."""
    atol: float
    """Absolute tolerance per unit of the output's largest magnitude."""
    engine: str = DEFAULT_ENGINE
    """Name of what executed the PEF, and the original."""

    @property
    def passed(self) -> bool:
        """Whether every output is within the tolerance."""
        return all(output.passed for output in self.outputs)


def verify(
    model: str | os.PathLike[str] | onnx.ModelProto,
    pef: Pef | str | os.PathLike[str],
    *,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    threads: int | None = None,
    engine: str = DEFAULT_ENGINE,
) -> Verification:
    """Compare a PEF on the emulator with the original model, both on one engine.

    On one engine, what the two graphs compute differs only by what the compiler did and by what
    the engine does wrong in one of them. If they differ on onnxruntime and agree on ``reference``,
    which shares no kernel with it, the fault is the engine's.

    Args:
        model: The original model, as a path or in memory.
        pef: The compiled model, open or as a path.
        inputs: Arrays by input name; random ones where None. Dynamic dimensions become 2.
        seed: Seed of the random inputs.
        rtol: Relative tolerance; that of :mod:`samba_onnx.facts.tolerances` where None.
        atol: Absolute tolerance per unit of the output's largest magnitude; likewise where None.
        threads: Threads of both sides; all cores where None.
        engine: Name of what executes both sides: ``onnxruntime``, or ``reference``, which is slow
            and exact.

    Returns:
        One comparison per output, in the graph's order.

    Raises:
        ModelError: The original cannot be used.
        PefError: The PEF cannot be used, or the device copied something else than it plans.
        UsageError: The PEF's interface is not that of the model, or there is no such engine.
        ExecutionError: The engine fails on the original or on the PEF.
    """
    loaded = load_model(model)
    with _opened(pef) as opened:
        graph = opened.manifest.graphs[0]
        names = tuple(value.name or "" for value in loaded.model.graph.outputs)
        if names != graph.outputs:
            raise UsageError(
                f"{opened.path} has outputs {list(graph.outputs)}, the model has {list(names)}: "
                "verify takes the model that the PEF was converted from"
            )
        fed = dict(inputs) if inputs is not None else seeded_inputs(opened, seed)
        expected = run_original(loaded.path or model, fed, engine=engine, threads=threads)
        return _compare_run(opened, fed, expected, "original", rtol, atol, threads, engine)


def self_test(
    pef: Pef | str | os.PathLike[str],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    threads: int | None = None,
    engine: str = DEFAULT_ENGINE,
) -> Verification:
    """Compare a PEF on the emulator with the reference sample inside it.

    Args:
        pef: The compiled model, open or as a path.
        rtol: Relative tolerance; the sample's own where None.
        atol: Absolute tolerance per unit of the output's largest magnitude; the sample's own where
            None.
        threads: Threads of the emulator; all cores where None.
        engine: Name of what executes sections and fallbacks: ``onnxruntime``, with which the sample
            was made, or ``reference``, which is slow and exact.

    Returns:
        One comparison per output of the sample.

    Raises:
        PefError: The PEF cannot be used, or the device copied something else than it plans.
        UsageError: The PEF carries no reference sample, or there is no such engine.
        ExecutionError: The engine fails on the PEF.
    """
    with _opened(pef) as opened:
        sample = opened.manifest.reference
        if sample is None:
            raise UsageError(
                f"{opened.path} carries no reference sample: "
                "verify it against its model, or convert again with --sample"
            )
        return _compare_run(
            opened,
            opened.reference_inputs(),
            opened.reference_outputs(),
            "sample",
            sample.rtol if rtol is None else rtol,
            sample.atol if atol is None else atol,
            threads,
            engine,
        )


def seeded_inputs(pef: Pef, seed: int, *, dynamic: int = 2) -> dict[str, Any]:
    """Return random inputs for a PEF's first graph.

    Args:
        pef: The compiled model.
        seed: Seed of the generator; the same seed gives the same arrays.
        dynamic: Size that dynamic dimensions take.

    Returns:
        Arrays by input name.

    Raises:
        UsageError: An input is no tensor, or its rank is unknown.
    """
    symbols = {symbol.name: symbol for symbol in pef.manifest.symbols}
    specs: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name in pef.manifest.graphs[0].inputs:
        symbol = symbols[name]
        if not symbol.type.startswith("tensor(") or symbol.shape is None:
            raise UsageError(f"input {name!r} has type {symbol.type}: give it with --input")
        shape = tuple(size if isinstance(size, int) else dynamic for size in symbol.shape)
        specs[name] = (symbol.type, shape)
    return random_inputs(specs, seed)


def run_original(
    model: str | os.PathLike[str] | onnx.ModelProto,
    inputs: Mapping[str, Any],
    *,
    engine: str = DEFAULT_ENGINE,
    threads: int | None = None,
) -> dict[str, Any]:
    """Run a model as it is.

    Args:
        model: A path (which may have external data beside it) or a model in memory.
        inputs: Values by input name.
        engine: Name of what runs it.
        threads: Threads inside operators; all cores where None.

    Returns:
        Values by output name.

    Raises:
        UsageError: There is no such engine.
        ExecutionError: The engine refuses the model or fails while running it.
    """
    from samba_onnx.runtime.engine.evaluation import evaluate_original

    return evaluate_original(model, inputs, engine=engine, threads=threads)


def compare(
    actual: Mapping[str, Any],
    expected: Mapping[str, Any],
    *,
    against: str,
    rtol: float | None = None,
    atol: float | None = None,
) -> Verification:
    """Compare two sets of outputs.

    An element passes when ``|actual - expected| <= atol * scale + rtol * |expected|``, where
    ``scale`` is the largest finite magnitude of the expected output. NaN equals NaN, infinities
    equal their like, and integers, booleans and strings must be equal.

    Args:
        actual: Values by name: arrays, lists of them, or None.
        expected: The same names.
        against: What ``expected`` comes from, for the report.
        rtol: See above; that of :mod:`samba_onnx.facts.tolerances` where None.
        atol: See above; likewise where None.

    Returns:
        One comparison per array.
    """
    outputs = []
    for name, wanted in expected.items():
        leaves = list(_leaves(name, wanted))
        got = dict(_leaves(name, actual.get(name)))
        outputs += [
            _compare_array(leaf, got.get(leaf), value, rtol, atol) for leaf, value in leaves
        ]
        outputs += [_failed(leaf, value) for leaf, value in got.items() if leaf not in dict(leaves)]
    return Verification(
        against,
        tuple(outputs),
        OUTPUT.relative if rtol is None else rtol,
        OUTPUT.absolute if atol is None else atol,
    )


@contextlib.contextmanager
def _opened(pef: Pef | str | os.PathLike[str]) -> Iterator[Pef]:
    """Open a PEF given by path and close it again; leave one that is already open alone."""
    if isinstance(pef, Pef):
        yield pef
        return
    with load_pef(Path(pef)) as opened:
        yield opened


def _compare_run(
    pef: Pef,
    inputs: Mapping[str, Any],
    expected: Mapping[str, Any],
    against: str,
    rtol: float | None,
    atol: float | None,
    threads: int | None,
    engine: str,
) -> Verification:
    from samba_onnx.runtime.accounting import check_plan
    from samba_onnx.runtime.device import Device

    with Device(pef, engine=engine, threads=threads, prepack=False) as device:
        actual = device.run(inputs)
        check_plan(device.ledger, pef.manifest.graphs[0])
    comparison = compare(actual, expected, against=against, rtol=rtol, atol=atol)
    return dataclasses.replace(comparison, engine=engine)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, np.ndarray | None]]:
    """Yield the arrays of a value under names such as ``y``, ``y[0]``, ``y['key']``."""
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(f"{name}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{name}[{key!r}]", item)
    else:
        yield name, None if value is None else np.asarray(value)


def _failed(name: str, value: np.ndarray | None) -> OutputComparison:
    array = np.empty(0) if value is None else value
    size = max(array.size, 1)
    infinite = float("inf")
    return OutputComparison(
        name, str(array.dtype), array.shape, infinite, infinite, size, size, passed=False
    )


def _compare_array(
    name: str,
    actual: np.ndarray | None,
    expected: np.ndarray | None,
    rtol: float | None,
    atol: float | None,
) -> OutputComparison:
    if actual is None and expected is None:
        return OutputComparison(name, "none", (), 0.0, 0.0, 0, 0, passed=True)
    if actual is None or expected is None or actual.shape != expected.shape:
        return _failed(name, expected)
    if actual.dtype != expected.dtype and actual.dtype.kind not in "OUST":
        return _failed(name, expected)
    if expected.dtype.kind in "biuOUST":
        errors = _exact_errors(actual, expected)
        tolerance, scale = np.zeros(1), 1.0
    else:
        errors, tolerance, scale = _float_errors(actual, expected, rtol, atol)
    largest = float(errors.max(initial=0.0))
    mismatched = int(np.count_nonzero(errors > tolerance))
    relative = largest / scale if scale else largest
    return OutputComparison(
        name,
        str(expected.dtype),
        expected.shape,
        largest,
        relative,
        mismatched,
        expected.size,
        passed=mismatched == 0,
    )


def _exact_errors(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    if expected.dtype.kind in "iu":
        wide = actual.astype(np.float64) - expected.astype(np.float64)
        return np.asarray(np.where(actual == expected, 0.0, np.maximum(np.abs(wide), 1.0)))
    return np.asarray(actual != expected).astype(np.float64)


def _float_errors(
    actual: np.ndarray, expected: np.ndarray, rtol: float | None, atol: float | None
) -> tuple[np.ndarray, np.ndarray, float]:
    tolerance = output_tolerance(str(expected.dtype))
    relative = tolerance.relative if rtol is None else rtol
    absolute = tolerance.absolute if atol is None else atol
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    left, right = actual.astype(wide), expected.astype(wide)
    finite = np.isfinite(left) & np.isfinite(right)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    magnitude = np.where(finite, np.abs(right), 0.0)
    scale = float(magnitude.max(initial=0.0))
    with np.errstate(invalid="ignore"):
        errors = np.where(same, 0.0, np.where(finite, np.abs(left - right), np.inf))
    return errors, absolute * scale + relative * magnitude, scale
