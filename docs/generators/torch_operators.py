"""The table of torch's operators: which are written in ONNX and compute what torch does.

``python -m docs.generators.torch_operators`` runs the samples and writes it anew, in a quarter of an hour;
with names of operators it writes their rows anew.
"""

from __future__ import annotations

import argparse
import collections
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from tests.export.operator_database import (
    DTYPES,
    EXCLUDED,
    MODES,
    MOST,
    Case,
    Exporter,
    Mode,
    borrowing,
    cases,
    operators,
    verdict,
)

DOCS = Path(__file__).parents[1]
PATHS = MappingProxyType({"value": DOCS / "torch_operators.md"})
"""Where the table of each mode is kept."""

_HEADER = """\
# torch's operators in ONNX

Samples of torch's own operator database (`torch.testing._internal`, torch {version}) are captured,
written in ONNX, run with onnxruntime and compared with torch: all of an operator and a data
type, or {most} evenly spread ones. A cell says how many samples of a data
type pass; *first* is what the first of them does, *borrowed* being what torch's own exporter writes.

{summary}

`python -m docs.generators.torch_operators` writes this page.

| operator | first | {dtypes} | why not |
|---|---|{rules}---|
"""


@dataclass
class Row:
    """What came out of one operator."""

    name: str
    first: str = "none"
    """``passes``, ``borrowed``, ``fails`` or ``none`` if there is no sample."""
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(passed, run) by data type."""
    reasons: collections.Counter[str] = field(default_factory=collections.Counter)
    borrowed: bool = False
    """Whether torch's own exporter has written some of it."""

    @property
    def passed(self) -> int:
        """Samples that passed."""
        return sum(passed for passed, _ in self.counts.values())

    @property
    def ran(self) -> int:
        """Samples that were run."""
        return sum(ran for _, ran in self.counts.values())

    def render(self) -> str:
        """Return a line of the table."""
        cells = [
            "{}/{}".format(*self.counts[_name(dtype)]) if _name(dtype) in self.counts else ""
            for dtype in DTYPES
        ]
        reasons = self.reasons.copy()
        if self.borrowed:
            reasons["through torch's own exporter"] += self.ran
        why = "; ".join(text.strip() for text, _ in reasons.most_common(3))
        return " | ".join(["| " + self.name, self.first, *cells, why.replace("|", "/")]) + " |"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def run_operator(operator: Any, mode: Mode, exporter: Exporter) -> Row:
    """Run the samples of an operator in every data type."""
    row = Row(operator.full_name)
    if row.name in EXCLUDED:
        row.reasons[EXCLUDED[row.name]] += 1
        return row
    if not set(DTYPES) & set(operator.dtypes):
        row.reasons["it has no sample of these types"] += 1
    for dtype in DTYPES:
        states = [_state(case, mode, exporter, row) for case in cases(operator, dtype)]
        if states:
            row.first = states[0] if row.first == "none" else row.first
            row.counts[_name(dtype)] = (len(states) - states.count("fails"), len(states))
    return row


def _state(case: Case, mode: Mode, exporter: Exporter, row: Row) -> str:
    """Run a sample, first without and then with torch's own exporter; note why it fails."""
    with borrowing(None):
        found = verdict(case, mode)
    if found.passed:
        return "passes"
    if found.reason.startswith("no translation"):
        with borrowing(exporter):
            second = verdict(case, mode)
        if second.passed:
            row.borrowed = True
            return "borrowed"
    row.reasons[found.reason] += 1
    return "fails"


def first_samples(mode: Mode, step: int = 1) -> Iterator[tuple[str, str, str]]:
    """Run one sample of an operator: its name, its state and why.

    The state is as in a row, but what torch's own exporter would write fails.

    Args:
        mode: What of an operator is compared.
        step: Every how many operators one is run.
    """
    for operator in operators()[::step]:
        if operator.full_name in EXCLUDED:
            yield operator.full_name, "none", EXCLUDED[operator.full_name]
            continue
        case = next((c for dtype in DTYPES for c in cases(operator, dtype, 1)), None)
        found = None if case is None else verdict(case, mode)
        state = "none" if found is None else "passes" if found.passed else "fails"
        yield operator.full_name, state, "" if found is None else found.reason


def summary(rows: Sequence[Row]) -> str:
    """Return the sums of a table in words."""
    known = [row for row in rows if row.ran]
    complete = sum(row.passed == row.ran for row in known)
    some = sum(0 < row.passed < row.ran for row in known)
    passed, ran = sum(row.passed for row in known), sum(row.ran for row in known)
    return (
        f"Of {len(known)} operators with results to compare, {complete} pass with every sample, "
        f"{some} with some and {len(known) - complete - some} with none: {passed} of {ran} samples. "
        f"{len(rows) - len(known)} more are random, uninitialised or have no sample."
    )


def render(rows: Sequence[Row]) -> str:
    """Return the whole page."""
    head = _HEADER.format(
        version=torch.__version__.partition("+")[0],
        most=MOST,
        summary=summary(rows),
        dtypes=" | ".join(map(_name, DTYPES)),
        rules="---|" * len(DTYPES),
    )
    return head + "".join(row.render() + "\n" for row in sorted(rows, key=lambda row: row.name))


def read(page: str) -> list[Row]:
    """Return the rows of a page; what it says about each operator is one reason."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [_read_row([cell.strip() for cell in line.split("|")[1:-1]]) for line in lines[1:]]


def _read_row(cells: list[str]) -> Row:
    row = Row(*cells[:2])
    for dtype, cell in zip(DTYPES, cells[2:], strict=False):
        if cell:
            passed, ran = map(int, cell.split("/"))
            row.counts[_name(dtype)] = (passed, ran)
    if cells[-1]:
        row.reasons[cells[-1]] += 1
    return row


def read_first(page: str) -> dict[str, str]:
    """Return the state of the first sample by operator, from a page."""
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {cells[0].removeprefix("| "): cells[1] for cells in rows[1:]}


def read_version(page: str) -> str:
    """Return the version of torch that a page was made with."""
    return page.partition("torch.testing._internal`, torch ")[2].partition(")")[0]


def quiet() -> None:
    """Silence what torch and onnxruntime say about operators that they refuse."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)


def main() -> None:
    """Write the table, or the rows of some operators in it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="operators, all by default")
    parser.add_argument("--mode", choices=sorted(MODES), default="value")
    options = parser.parse_args()
    quiet()
    mode, rows = MODES[options.mode], []
    exporter = Exporter()
    for operator in operators():
        if not options.names or operator.full_name in options.names:
            rows.append(run_operator(operator, mode, exporter))
            sys.stdout.write(rows[-1].render() + "\n")
            sys.stdout.flush()
    path, new = PATHS[options.mode], {row.name for row in rows}
    if options.names:
        rows += [row for row in read(path.read_text(encoding="utf-8")) if row.name not in new]
    sys.stdout.write(summary(rows) + "\n")
    path.write_text(render(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
