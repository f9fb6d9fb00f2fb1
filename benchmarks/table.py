"""One row per ratio, and the table of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


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
    seconds: float | None = None
    """What a step of the baseline takes."""
    limit: float | None = None
    """The seconds below which this machine cannot do a step: operations by the rate of its products of matrices, or
    bytes by that of its memory, whichever is more."""

    @property
    def of_limit(self) -> tuple[float, float] | None:
        """How many times the limit ours and the baseline take; None where there is no limit or no ratio."""
        if not self.limit or self.seconds is None or self.ratio is None:
            return None
        theirs = self.seconds / self.limit
        return self.ratio * theirs, theirs

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
    lines = [
        "| what | against | ratio | aim | times the limit: ours, theirs | |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = "failed" if row.ratio is None else f"{row.ratio:.3g}x"
        aim = "" if row.aim is None else f"≤ {row.aim:g}x"
        far = "" if row.of_limit is None else "{:.3g}, {:.3g}".format(*row.of_limit)
        lines.append(
            f"| {row.what} | {row.baseline} | {ratio} | {aim} | {far} | {row.verdict} {row.note} |"
        )
    return "\n".join(lines)


def records(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the rows as records of a JSON document, by which two machines can be compared."""
    return [asdict(row) | {"times_the_limit": row.of_limit} for row in rows]
