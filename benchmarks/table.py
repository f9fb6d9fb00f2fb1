"""One row per ratio, and the table of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Ours divided by a baseline, both measured in this run."""

    what: str
    baseline: str
    ratio: float | None
    """None where the baseline failed."""
    aim: float | None = None
    """The largest ratio that was aimed for."""
    note: str = ""

    @property
    def verdict(self) -> str:
        """Whether the aim is met, in one word."""
        if self.aim is None or self.ratio is None:
            return ""
        return "met" if self.ratio <= self.aim else "missed"


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean of positive ratios."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logarithms) / len(logarithms))


def markdown(rows: Iterable[Row]) -> str:
    """Return the rows as a table that a README can hold."""
    lines = ["| what | against | ratio | aim | |", "|---|---|---|---|---|"]
    for row in rows:
        ratio = "failed" if row.ratio is None else f"{row.ratio:.3g}x"
        aim = "" if row.aim is None else f"≤ {row.aim:g}x"
        lines.append(
            f"| {row.what} | {row.baseline} | {ratio} | {aim} | {row.verdict} {row.note} |"
        )
    return "\n".join(lines)
