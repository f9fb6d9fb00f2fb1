"""Fit constants of the timing model to the fitted half of published rows: ``python -m benchmarks fidelity --fit``.

Each constant has a prior, from what is published about it or, where nothing is, a wide one around that of another
target; and bounds, within which it has a meaning. What is minimised is the sum of squared logarithms of modelled over
published time, a tenth counting as much as one spread of a prior. Judged rows are not compiled.

Where sections are cut depends on the constants, too. So programs are compiled again with those that were found, until
these stay; in between, only terms are evaluated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from benchmarks.fidelity_programs import planned
from benchmarks.fidelity_terms import ProgramTerms, program_terms
from benchmarks.published import FITTED, PublishedRow, published_rows
from samba_onnx.passes.targets import load_target
from samba_onnx.pef.target_summary import TargetSummary

FOLDER: Final = Path(__file__).parents[1] / "samba_onnx" / "passes" / "targets"
SPREAD: Final = 0.1
"""Of the logarithm of a modelled over a published time."""
ROUNDS: Final = 4
"""Times that programs are compiled, at most."""
STARTS: Final = 8
"""Values of the constants from which the optimizer begins: their priors, and others as likely as these say."""
STILL: Final = 0.01
"""Change of a constant, as a share, that is none."""

_SECONDS: Final[Mapping[str, float]] = {"s": 1.0, "ms": 1e-3}


@dataclass(frozen=True)
class Constant:
    """A constant that is fitted, with what is known of it."""

    paths: tuple[str, ...]
    """Where the target's file has it, below ``hardware``; several that have one value."""
    prior: float
    spread: float
    """Of its logarithm, around the prior."""
    low: float
    high: float
    origin: str
    """Where prior and bounds come from."""

    @property
    def from_rows(self) -> bool:
        """Whether the prior was itself found from published rows, those among them that are judged."""
        return self.paths[0] not in _FROM_ELSEWHERE


def _one(path: str, prior: float, spread: float, low: float, high: float, origin: str) -> Constant:
    return Constant((path,), prior, spread, low, high, origin)


_FROM_ELSEWHERE: Final = frozenset({"tiers.hbm.wide_bytes_per_second"})
"""Constants whose priors come from something else: bandwidth of HBM is quoted from 1.6 to 1.8 TB/s by papers."""

CONSTANTS: Final[Mapping[str, tuple[Constant, ...]]] = {
    "sn10": (
        _one("timing.device_launch_seconds", 28e-6, 0.1, 24e-6, 32e-6, "24 to 32 µs published"),
        _one("tiers.ddr.wide_bytes_per_second", 80e9, 0.2, 30e9, 153.6e9, "80 GB/s published"),
        _one("tiers.ddr.narrow_bytes_per_second", 30e9, 0.1, 15e9, 80e9, "29 to 31 GB/s published"),
        _one("timing.product_efficiency", 0.14, 0.7, 0.02, 1.0, "wide, around 0.14 of GPT-2"),
        _one("timing.streamed_share", 0.7, 0.7, 0.1, 1.0, "wide"),
        _one(
            "timing.map_seconds", 30e-9, 0.7, 1e-9, 300e-9, "wide, around 100 bytes of a small map"
        ),
        _one("timing.position_seconds", 10e-9, 0.7, 0.1e-9, 100e-9, "wide, about ten cycles"),
    ),
    "sn30": (
        _one("timing.device_launch_seconds", 85e-6, 0.3, 45e-6, 125e-6, "45 to 125 µs published"),
        _one("tiers.ddr.wide_bytes_per_second", 80e9, 0.5, 30e9, 153.6e9, "as the SN10, wide"),
        _one("tiers.ddr.narrow_bytes_per_second", 30e9, 0.5, 10e9, 153.6e9, "as the SN10, wide"),
        _one("timing.product_efficiency", 0.14, 0.7, 0.02, 1.0, "wide, around that of sections"),
        _one("timing.fused_efficiency", 0.14, 0.3, 0.02, 1.0, "0.14 published for GPT-2 at o3"),
        _one("timing.tuned_efficiency", 0.28, 0.1, 0.02, 1.0, "0.28 published for BERT-Large"),
    ),
    "sn40l": (
        _one("timing.device_launch_seconds", 25e-6, 0.1, 10e-6, 50e-6, "25 µs published"),
        Constant(
            ("tiers.hbm.wide_bytes_per_second", "tiers.hbm.narrow_bytes_per_second"),
            1.67e12,
            0.05,
            1.3e12,
            1.8e12,
            "1.67 TB/s published, up to 1.8 quoted",
        ),
        # 12 µs of a layer are published as its two exchanges: a layer's sections have their own small times in it, too.
        _one("rdu_link_latency_seconds", 6e-6, 0.7, 1e-6, 12e-6, "up to 6 µs published, wide"),
        _one("rdu_link_bytes_per_second", 32e9, 0.7, 10e9, 200e9, "wide, around one PCIe link"),
    ),
}
"""By target. What is not here is published, follows from what is, or is assumed, and the file says so."""

SHARED: Final[Mapping[str, Mapping[str, str]]] = {
    "sn10": dict.fromkeys(("timing.fused_efficiency", "timing.tuned_efficiency"), "sn30"),
    "sn30": dict.fromkeys(
        ("timing.streamed_share", "timing.map_seconds", "timing.position_seconds"), "sn10"
    ),
    "sn40l": {
        "timing.product_efficiency": "sn30",
        "timing.fused_efficiency": "sn30",
        "timing.tuned_efficiency": "sn30",
        "timing.streamed_share": "sn10",
        "timing.map_seconds": "sn10",
        "timing.position_seconds": "sn10",
        "tiers.ddr.wide_bytes_per_second": "sn10",
        "tiers.ddr.narrow_bytes_per_second": "sn10",
    },
}
"""By target: constants that no row of its own is about, and the target whose value is assumed."""


def fit(report: Callable[[str], None]) -> None:
    """Fit all constants and write them into the targets' files.

    Args:
        report: Called with a line for each constant.
    """
    found: dict[str, dict[str, float]] = {}
    for target, constants in CONSTANTS.items():
        known = {
            path: found[owner][path]
            for path, owner in SHARED[target].items()
            if path in found.get(owner, {})
        }
        rows = [row for row in published_rows() if _is_fitted(row, target)]
        values = fitted(rows, constants, known)
        found[target] = values
        for constant in constants:
            for path in constant.paths:
                report(f"{target} {path}: {values[path]:.3g} (prior {constant.prior:g})")
    for target, constants in CONSTANTS.items():
        file = FOLDER / f"{target}.toml"
        text = file.read_text(encoding="utf-8")
        for constant in constants:
            ids = _stated(target)
            note = f"fitted to {ids}; prior: {constant.origin}"
            for path in constant.paths:
                text = stated(text, path, found[target][path], "derived", note)
        for path, owner in SHARED[target].items():
            text = stated(text, path, found[owner][path], "assumed", f"as the {owner.upper()}")
        file.write_text(text, encoding="utf-8")


def fitted(
    rows: Sequence[PublishedRow], constants: Sequence[Constant], known: Mapping[str, float]
) -> dict[str, float]:
    """Return the values of constants that fit rows best.

    Args:
        rows: Published times and rates, all of one target.
        constants: The constants.
        known: Other constants that differ from those of the target's file, by path.

    Returns:
        Values by path, with three digits.
    """
    values = {path: constant.prior for constant in constants for path in constant.paths}
    for _ in range(ROUNDS):
        before = values
        programs = [_terms(row, {**known, **values}) for row in rows]
        values = _best(programs, constants, known)
        if all(abs(values[path] / before[path] - 1) < STILL for path in values):
            break
    return values


def with_constants(summary: TargetSummary, values: Mapping[str, float]) -> TargetSummary:
    """Return a target's figures with other constants.

    Args:
        summary: The figures.
        values: By path below ``hardware`` of the target's file: of ``timing``, of a tier or of the link between RDUs.
    """
    changes: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        owner, _, name = path.rpartition(".")
        changes.setdefault(owner, {})[name] = value
    timing = summary.timing and replace(summary.timing, **changes.get("timing", {}))
    tiers = tuple(replace(tier, **changes.get(f"tiers.{tier.name}", {})) for tier in summary.tiers)
    return replace(summary, timing=timing, tiers=tiers, **changes.get("", {}))


def stated(text: str, path: str, value: float, evidence: str, note: str) -> str:
    """Return the text of a target's file with another value of a constant.

    Args:
        text: Of the file.
        path: The constant, below ``hardware``; it stands in a line of its own.
        value: With three digits.
        evidence: How it is known.
        note: Why that value.

    Raises:
        KeyError: The file does not have it.
    """
    table, _, name = path.rpartition(".")
    head, found, rest = text.partition(f"[{'.'.join(filter(None, ('hardware', table)))}]\n")
    line = f'{name} = {{ value = {value:.3g}, evidence = "{evidence}", note = "{note}" }}'
    rest, count = re.subn(rf"^{name} = .*$", line, rest, count=1, flags=re.MULTILINE)
    if not found or not count:
        raise KeyError(path)
    return f"{head}{found}{rest}"


def published_seconds(row: PublishedRow, flops: int) -> float:
    """Return the time that a row states, or that follows from its rate.

    Args:
        row: A time or a rate.
        flops: Operations of its program.
    """
    if row.unit in _SECONDS:
        return row.value * _SECONDS[row.unit]
    work = flops / 1e12 if row.unit == "TFLOPS" else int(row.sizes["elements"]) / 1e9
    return work / row.value


def _is_fitted(row: PublishedRow, target: str) -> bool:
    timed = row.unit in (*_SECONDS, "TFLOPS", "Gelements/s")
    return row.half == FITTED and timed and row.profile.partition(":")[0] == target


def _stated(target: str) -> str:
    """Return the fitted rows of a target in words."""
    ids = [row.id.partition("/")[2] for row in published_rows() if _is_fitted(row, target)]
    series = [name.rpartition("/") for name in ids]
    by_series: dict[str, list[str]] = {}
    for head, _, tail in series:
        by_series.setdefault(head, []).append(tail)
    return ", ".join(f"{head} {' '.join(tails)}".strip() for head, tails in by_series.items())


def _terms(
    row: PublishedRow, values: Mapping[str, float]
) -> tuple[PublishedRow, TargetSummary, ProgramTerms]:
    target = load_target(row.profile)
    summary = with_constants(target.summary, values)
    plan = planned(row, target=replace(target, summary=summary))
    return row, summary, program_terms(plan, row.replicas)


def _best(
    programs: Sequence[tuple[PublishedRow, TargetSummary, ProgramTerms]],
    constants: Sequence[Constant],
    known: Mapping[str, float],
) -> dict[str, float]:
    """Return the values with the least sum of squares, for programs as they are compiled."""
    published = [published_seconds(row, terms.flops) for row, _, terms in programs]
    priors = np.log([one.prior for one in constants])

    def values(logs: Sequence[float]) -> dict[str, float]:
        pairs = zip(constants, np.exp(logs), strict=True)
        return {path: float(value) for one, value in pairs for path in one.paths}

    def residuals(logs: Any) -> list[float]:
        tried = {**known, **values(logs)}
        times = [terms.seconds(with_constants(summary, tried)) for _, summary, terms in programs]
        off = [math.log(a / b) / SPREAD for a, b in zip(times, published, strict=True)]
        away = (logs - priors) / [one.spread for one in constants]
        return [*off, *away]

    bounds = (np.log([one.low for one in constants]), np.log([one.high for one in constants]))
    # What bounds a section changes with the constants, so that there are several minima.
    away = np.random.default_rng(0).normal(size=(STARTS - 1, len(constants)))
    starts = [priors, *(priors + away * [one.spread for one in constants])]
    solutions = [least_squares(residuals, np.clip(x, *bounds), bounds=bounds) for x in starts]
    solution = min(solutions, key=lambda one: float(one.cost))
    return {path: float(f"{value:.3g}") for path, value in values(solution.x).items()}
