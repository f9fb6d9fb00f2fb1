"""The constants of a target that measured times lead to, and what each of them rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from samba_onnx.pef.target_summary import TargetSummary, Tier
from samba_onnx.tools.validate.measurements import Measured

__all__ = ["Fit", "fitted", "geometric_error", "left_out", "profile_text", "values"]

_SPREAD: Final = 0.1
"""Spread of the logarithm of a measured time: a tenth counts as much as one spread of a constant around its planned value."""
_PRIOR: Final = 0.7
"""Spread of the logarithm of a constant around its planned value: half to twice of it is likely."""
_ROUNDS: Final = 25
_STEP: Final = 1e-5
_FOLDS: Final = 20
"""Fits at most for times left out: of more than so many, several are left out together."""
_RESTS: Final = 0.5
"""A time rests on a constant where it grows by half as much and more, as shares."""


@dataclass(frozen=True)
class Fit:
    """Factors of parts of times, and how many measured times each of them rests on."""

    factors: Mapping[str, float]
    """By constant, ``off_chip`` for both rates of memory: how many times as long as planned its part takes."""
    rows: Mapping[str, int]


def fitted(measured: Sequence[Measured]) -> Fit:
    """Return the constants that measured times lead to, by least squares.

    Args:
        measured: The times.

    Returns:
        Factors; 1 for a constant on which no time rests, whose planned value stands.
    """
    names = sorted(
        {name for one in measured for piece in one.pieces for name in (piece.launch, piece.compute)}
        | {"off_chip"}
    )
    logs = np.zeros(len(names))
    slopes = np.zeros((len(measured), len(names)))
    for _ in range(_ROUNDS):
        errors = _errors(measured, names, logs)
        slopes = np.array(
            [
                (_errors(measured, names, logs + _STEP * unit) - errors) / _STEP
                for unit in np.eye(len(names))
            ]
        ).T
        # Not least squares alone: a constant that few times rest on would run away with their noise.
        normal = slopes.T @ slopes / _SPREAD**2 + np.eye(len(names)) / _PRIOR**2
        step = np.linalg.solve(normal, slopes.T @ errors / _SPREAD**2 + logs / _PRIOR**2)
        # The longest part of a section may become another one: half a step does not run past that.
        logs = logs - np.clip(step, -0.5, 0.5)
        if np.abs(step).max() < _STEP:
            break
    rests = (slopes >= _RESTS).sum(axis=0)
    return Fit(
        {
            name: float(np.exp(log)) if count else 1.0
            for name, log, count in zip(names, logs, rests, strict=True)
        },
        {name: int(count) for name, count in zip(names, rests, strict=True)},
    )


def left_out(measured: Sequence[Measured]) -> list[float]:
    """Return modelled over measured times, each by a fit that has not seen the time.

    Args:
        measured: The times.
    """
    # Every so many lines, not neighbours: those are often of one program, and would stand in for each other.
    folds = min(len(measured), _FOLDS)
    ratios = [0.0] * len(measured)
    for fold in range(folds):
        fit = fitted([one for place, one in enumerate(measured) if place % folds != fold])
        for place in range(fold, len(measured), folds):
            one = measured[place]
            ratios[place] = one.modelled(fit.factors) / one.seconds
    return ratios


def geometric_error(ratios: Sequence[float]) -> float:
    """Return the geometric mean of how far ratios are from 1, as a factor minus 1."""
    return math.exp(sum(abs(math.log(ratio)) for ratio in ratios) / len(ratios)) - 1


def values(target: TargetSummary, fit: Fit) -> list[tuple[str, float, float, int]]:
    """Return every constant by its name in a target's file, as planned and fitted, with the times that it rests on.

    Args:
        target: The figures that the PEFs were planned with.
        fit: What was found.
    """
    rows: list[tuple[str, float, float, int]] = []
    for name, factor in fit.factors.items():
        count = fit.rows[name]
        if name == "off_chip":
            for tier in target.tiers:
                if tier.name != "sram":
                    rows += [(path, r, r / factor, count) for path, r in _rates(tier)]
            continue
        planned = float(getattr(target.timing, name.partition(".")[2], 0.0))
        seconds = name.endswith("_seconds")
        # An efficiency is a share of the peak rate.
        own = planned * factor if seconds else min(planned / factor, 1.0)
        rows.append((name, planned, own, count))
    return rows


def profile_text(
    base: str, name: str, rows: Sequence[tuple[str, float, float, int]], source: str
) -> str:
    """Return a target's file with the constants that measured times lead to.

    Args:
        base: The target that it extends.
        name: What the profile is called.
        rows: What :func:`values` returns; a constant on which nothing rests is left to the base.
        source: The file of the measured times.
    """
    tables: dict[str, list[str]] = {}
    for path, _, value, count in rows:
        if count:
            table, _, key = path.rpartition(".")
            times = f"{count} measured time{'s' * (count > 1)}"
            note = f"fitted to {times} of {source}".replace("\\", "/").replace('"', "'")
            tables.setdefault(table, []).append(
                f'{key} = {{ value = {value:.4g}, evidence = "derived", note = "{note}" }}'
            )
    lines = [f'extends = "{base}"', f'name = "{name}"']
    for table, own in tables.items():
        lines += ["", f"[hardware.{table}]", *own]
    return "\n".join(lines) + "\n"


def _rates(tier: Tier) -> list[tuple[str, float]]:
    return [
        (f"tiers.{tier.name}.wide_bytes_per_second", tier.wide_bytes_per_second or tier.bytes_per_second),
        (f"tiers.{tier.name}.narrow_bytes_per_second", tier.narrow_bytes_per_second or tier.bytes_per_second),
    ]  # fmt: skip


def _errors(measured: Sequence[Measured], names: Sequence[str], logs: Any) -> Any:
    factors = dict(zip(names, np.exp(logs).tolist(), strict=True))
    return np.array([math.log(one.modelled(factors) / one.seconds) for one in measured])
