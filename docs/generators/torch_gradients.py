"""The table of torch's operators whose gradients in ONNX are those of torch's autograd.

``python -m docs.generators.torch_gradients`` runs the samples and writes it anew, in some minutes.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from docs.generators.torch_operators import quiet
from tests.export.gradient_database import (
    LEFT_OUT,
    SAMPLES,
    gradient_verdict,
    is_counted,
    samples,
)
from tests.export.operator_database import borrowing, operators

PATH = Path(__file__).parents[1] / "torch_gradients.md"
"""Where the table is kept."""

_HEADER = """\
# Gradients of torch's operators in ONNX

Operators of torch's own operator database (`torch.testing._internal`, torch {version}) that torch can
differentiate in float32, each with up to {samples} samples, evenly spread. The loss is the sum of an
operator's results times fixed random weights, complex results as pairs; forward and backward are exported
as parts of a training program and run with onnxruntime, one after the other. The gradients of all its
inputs are compared with torch's autograd in float64, or in float32 where that is nearer: allowed is ten
times what torch itself is off in float32, and a millionth of the largest number. A cell says how many
samples pass; *first* is what the first of them does.

Samples are not counted that torch has no gradient of, and those whose forward is not written in ONNX
either ([torch_operators.md](torch_operators.md) says why); nor is what torch's own exporter would write.

{summary}

`python -m docs.generators.torch_gradients` writes this page.

| operator | first | passed | why not |
|---|---|---|---|
"""


@dataclass
class Row:
    """What came out of one operator."""

    name: str
    first: str = "none"
    """``passes``, ``fails`` or ``none`` if the first sample does not count."""
    passed: int = 0
    ran: int = 0
    """Samples that count."""
    reasons: collections.Counter[str] = field(default_factory=collections.Counter)

    def render(self) -> str:
        """Return a line of the table."""
        why = "; ".join(text for text, _ in self.reasons.most_common(3)).replace("|", "/")
        return f"{self.cells} {why} |"

    @property
    def cells(self) -> str:
        """The line without reasons."""
        count = f"{self.passed}/{self.ran}" if self.ran else ""
        return f"| {self.name} | {self.first} | {count} |"


def run_operator(operator: Any, limit: int = SAMPLES) -> Row:
    """Run the samples of an operator."""
    row = Row(operator.full_name)
    if row.name in LEFT_OUT:
        row.reasons[LEFT_OUT[row.name]] += 1
        return row
    with borrowing(None):
        for number, sample in enumerate(samples(operator, limit)):
            found = gradient_verdict(sample)
            counted = is_counted(found)
            row.passed, row.ran = row.passed + found.passed, row.ran + counted
            if not found.passed:
                row.reasons[found.reason] += 1
            if number == 0 and counted:
                row.first = "passes" if found.passed else "fails"
    return row


def candidates() -> list[Any]:
    """Return the operators that torch can differentiate in float32."""
    return [one for one in operators() if one.supports_autograd and torch.float32 in one.dtypes]


def summary(rows: Sequence[Row]) -> str:
    """Return the sums of a table in words."""
    known = [row for row in rows if row.ran]
    complete = sum(row.passed == row.ran for row in known)
    some = sum(0 < row.passed < row.ran for row in known)
    passed, ran = sum(row.passed for row in known), sum(row.ran for row in known)
    return (
        f"Of {len(known)} operators with gradients to compare, {complete} pass with every sample, "
        f"{some} with some and {len(known) - complete - some} with none: {passed} of {ran} samples. "
        f"{len(rows) - len(known)} more are random, or have no sample that counts."
    )


def render(rows: Iterable[Row]) -> str:
    """Return the whole page, from rows with ``SAMPLES`` samples each."""
    ordered = sorted(rows, key=lambda row: row.name)
    head = _HEADER.format(
        version=torch.__version__.partition("+")[0], samples=SAMPLES, summary=summary(ordered)
    )
    return head + "".join(row.render() + "\n" for row in ordered)


def read(page: str) -> list[Row]:
    """Return the rows of a page, without reasons."""
    rows = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if line.startswith("| ") and cells[1] != "operator":
            passed, _, ran = cells[3].partition("/")
            rows.append(Row(cells[1], cells[2], int(passed or 0), int(ran or 0)))
    return rows


def main() -> None:
    """Write the table, or print rows of some operators."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="operators to print instead of writing the page")
    parser.add_argument("--samples", type=int, help="of each; the page is not written either")
    options = parser.parse_args()
    printed = bool(options.names or options.samples)
    quiet()
    rows = []
    for operator in candidates():
        if not options.names or operator.full_name in options.names:
            rows.append(run_operator(operator, options.samples or SAMPLES))
            sys.stdout.write(rows[-1].render() + "\n")
            sys.stdout.flush()
    sys.stdout.write(summary(rows) + "\n")
    if not printed:
        PATH.write_text(render(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
