"""Each published row predicted by a fit that has not seen it.

Constants move together: one step of Gauss and Newton from those of the targets' files, over the logarithms of modelled
over published times of all other rows and over the priors of the constants. Programs stay cut into the sections that they
are compiled into. A row is left out with all others of its program: BERT-Large on 4 and on 16 instances, a token with
and without kernel looping, a convolution at all of its batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.fidelity_fit import (
    CONSTANTS,
    SHARED,
    SPREAD,
    Constant,
    published_seconds,
    with_constants,
)
from benchmarks.fidelity_terms import ProgramTerms
from benchmarks.published import PublishedRow
from samba_onnx.pef.target_summary import TargetSummary

__all__ = ["Compiled", "leave_one_out", "weight_of_rows"]

_WIDE: Final = 0.7
"""Spread of the logarithm of a constant whose prior was itself found from published rows: nothing is known before them."""
_STEP: Final = 1e-4


@dataclass(frozen=True)
class Compiled:
    """A published row, with what its program has to do."""

    row: PublishedRow
    target: TargetSummary
    terms: ProgramTerms

    @property
    def device(self) -> str:
        """The target, without conditions."""
        return self.row.profile.partition(":")[0]

    @property
    def program(self) -> tuple[object, ...]:
        """What rows have in common that are left out together."""
        sizes = {name: size for name, size in self.row.sizes.items() if name != "batch"}
        key = sizes if self.row.program == "conv2d" else dict(self.row.sizes)
        return (self.row.program, self.device, self.row.level, tuple(sorted(key.items())))

    def log_ratio(self, values: Mapping[tuple[str, str], float]) -> float:
        """Return the logarithm of modelled over published time.

        Args:
            values: Of constants, by target and path.
        """
        own = {path: value for (device, path), value in values.items() if device == self.device}
        for path, owner in SHARED[self.device].items():
            if (owner, path) in values:
                own[path] = values[owner, path]
        seconds = self.terms.seconds(with_constants(self.target, own))
        return math.log(seconds / published_seconds(self.row, self.terms.flops))


def leave_one_out(compiled: Sequence[Compiled]) -> dict[str, float]:
    """Return modelled over published time by row, each by a fit that has not seen the row's program.

    Args:
        compiled: All rows that are times or rates, each once.
    """
    fit = _Fit(compiled)
    programs = {one.program for one in compiled}
    left: dict[str, float] = {}
    for program in programs:
        values = fit.without(program)
        for one in compiled:
            if one.program == program:
                left[one.row.id] = math.exp(one.log_ratio(values))
    return {one.row.id: left[one.row.id] for one in compiled}


def weight_of_rows(compiled: Sequence[Compiled]) -> dict[tuple[str, str], tuple[int, str, float]]:
    """Return what each constant rests on, by target and path.

    Args:
        compiled: All rows that are times or rates, each once.

    Returns:
        How many programs move it by a hundredth and more if their times are a tenth longer; which program moves
        it most; and how much of all that they move it that one does.
    """
    return _Fit(compiled).rests_on()


class _Fit:
    """The least squares of all rows, linear around the constants of the targets' files."""

    def __init__(self, compiled: Sequence[Compiled]) -> None:
        self.compiled = compiled
        pairs = [(device, one) for device, ones in CONSTANTS.items() for one in ones]
        self.constants = pairs
        self.logs = np.log([_value(device, one, compiled) for device, one in pairs])
        self.residuals = np.array([one.log_ratio(self._values(self.logs)) for one in compiled])
        self.slopes = np.array([self._slope(place) for place in range(len(pairs))]).T
        spreads = [max(one.spread, _WIDE) if one.from_rows else one.spread for _, one in pairs]
        self.weights = 1 / np.square(spreads)
        self.priors = np.log([one.prior for _, one in pairs])

    def without(self, program: tuple[object, ...]) -> dict[tuple[str, str], float]:
        """Return the constants that all rows but those of a program lead to."""
        seen = np.array([one.program != program for one in self.compiled])
        inverse, slopes = self._solved(seen)
        pull = slopes.T @ (self.residuals[seen] / SPREAD**2) + self.weights * (
            self.logs - self.priors
        )
        moved = self.logs - inverse @ pull
        low = np.log([one.low for _, one in self.constants])
        high = np.log([one.high for _, one in self.constants])
        return self._values(np.clip(moved, low, high))

    def rests_on(self) -> dict[tuple[str, str], tuple[int, str, float]]:
        inverse, slopes = self._solved(np.ones(len(self.compiled), dtype=bool))
        gains = np.abs(inverse @ slopes.T) / SPREAD**2
        found: dict[tuple[str, str], tuple[int, str, float]] = {}
        for (device, constant), own in zip(self.constants, gains, strict=True):
            by_program: dict[tuple[object, ...], float] = {}
            names: dict[tuple[object, ...], str] = {}
            for one, gain in zip(self.compiled, own, strict=True):
                by_program[one.program] = by_program.get(one.program, 0.0) + float(gain)
                names.setdefault(one.program, one.row.id)
            first = max(by_program, key=lambda each: by_program[each])
            share = by_program[first] / max(sum(by_program.values()), 1e-12)
            count = sum(gain >= 0.1 for gain in by_program.values())
            found[device, constant.paths[0]] = (count, names[first], share)
        return found

    def _solved(self, seen: Any) -> tuple[Any, Any]:
        slopes = self.slopes[seen]
        return np.linalg.inv(slopes.T @ slopes / SPREAD**2 + np.diag(self.weights)), slopes

    def _slope(self, place: int) -> Any:
        logs = self.logs.copy()
        logs[place] += _STEP
        values = self._values(logs)
        device = self.constants[place][0]
        path = self.constants[place][1].paths[0]
        return [
            (one.log_ratio(values) - before) / _STEP
            if one.device == device or SHARED[one.device].get(path) == device
            else 0.0
            for one, before in zip(self.compiled, self.residuals, strict=True)
        ]

    def _values(self, logs: Any) -> dict[tuple[str, str], float]:
        return {
            (device, path): float(np.exp(log))
            for (device, one), log in zip(self.constants, logs, strict=True)
            for path in one.paths
        }


def _value(device: str, constant: Constant, compiled: Sequence[Compiled]) -> float:
    """Return the value that a constant has in its target's file."""
    summary = next((one.target for one in compiled if one.device == device), None)
    if summary is None:
        return constant.prior
    owner, _, name = constant.paths[0].rpartition(".")
    if owner == "timing":
        return float(getattr(summary.timing, name))
    if not owner:
        return float(getattr(summary, name))
    return float(getattr(summary.tier(owner.removeprefix("tiers.")), name))
