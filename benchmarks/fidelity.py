"""Hold modelled times against published ones: ``python -m benchmarks fidelity [--rows TEXT] [--statements] [--page] [--fit]``.

Each program is built from its configuration, without weights, and compiled for the profile of its row. Behind all rows
come published statements of how much one way of running a program gains over another. ``--page`` writes both tables into
``docs/fidelity.md`` and the bands of errors into ``samba_onnx/report/fidelity.toml``. ``--fit`` fits the constants of the targets
to the fitted half of the rows and writes them into their files.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import truediv
from pathlib import Path
from typing import Final

from benchmarks.fidelity_fit import fit
from benchmarks.fidelity_programs import planned
from benchmarks.fidelity_statements import Statement, statements
from benchmarks.fidelity_statements import table as statements_table
from benchmarks.fidelity_terms import gradient_bytes, program_terms
from benchmarks.leave_one_out import Compiled, leave_one_out, weight_of_rows
from benchmarks.published import FITTED, HIGH, LOW, PublishedRow, published_rows
from benchmarks.table import geometric_mean
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.schedule_time import run_time
from samba_onnx.pef.manifest import Manifest
from samba_onnx.report.fidelity import signature

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "fidelity.md"
BANDS: Final = ROOT / "samba_onnx" / "report" / "fidelity.toml"
BEGIN, END = "<!-- table: python -m benchmarks fidelity --page -->", "<!-- end of table -->"
BEGIN_STATEMENTS: Final = "<!-- statements: python -m benchmarks fidelity --page -->"
BEGIN_CONSTANTS: Final = "<!-- constants: python -m benchmarks fidelity --page -->"
END_CONSTANTS: Final = "<!-- end of constants -->"
END_STATEMENTS: Final = "<!-- end of statements -->"
SINGLE: Final = ("gemm", "elementwise", "conv2d")
"""Programs of one operator."""
SECTIONS: Final = 1.5
"""Numbers of sections are met within this factor."""
UNITS: Final[Mapping[str, float]] = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


@dataclass(frozen=True)
class Result:
    """One row, modelled."""

    row: PublishedRow
    modelled: float
    """In the unit of the row."""
    ratio: float
    """Modelled over published; of rates the ratio of the times, so that above 1 is always too slow."""
    left_out: float | None = None
    """The ratio by a fit that has not seen the row; None for what is no time."""

    @property
    def met(self) -> bool:
        """Whether it is as near as was aimed for."""
        if self.row.quantity == "sections":
            return 1 / SECTIONS <= self.ratio <= SECTIONS
        return LOW <= self.ratio <= HIGH


def seconds(row: PublishedRow, manifest: Manifest) -> float:
    """Return the modelled time of one run on the RDU, with the sum of gradients of replicas behind it."""
    time = run_time(manifest, manifest.graphs[0]).on_rdu
    if row.replicas > 1:
        time += manifest.target.exchange_seconds(gradient_bytes(manifest, row.replicas))
    return time


def result(row: PublishedRow) -> Result:
    """Compile the program of a row and return what is modelled of it."""
    manifest = planned(row).manifest
    time = seconds(row, manifest)
    flops = sum(section.flops for section in manifest.sections)
    traffic = sum(section.bytes for section in manifest.sections)
    elements = int(row.sizes.get("elements", 0))
    by_unit: Mapping[str, Callable[[], float]] = {
        **{unit: partial(truediv, time, scale) for unit, scale in UNITS.items()},
        "TFLOPS": lambda: flops / time / 1e12,
        "Gelements/s": lambda: elements / time / 1e9,
        "sections": lambda: float(len(manifest.sections)),
        "TFLOP": lambda: flops / 1e12,
        "GB": lambda: traffic / 1e9,
        "GB/s": lambda: traffic / time / 1e9,
    }
    modelled = by_unit[row.unit]()
    is_rate = row.quantity in ("throughput", "bandwidth")
    ratio = row.value / modelled if is_rate else modelled / row.value
    return Result(row, modelled, ratio)


def is_time(row: PublishedRow) -> bool:
    """Return whether a row is a measured time or rate, and no count, no projection and no other row once more."""
    return row.quantity != "sections" and "projection" not in row.series and not row.repeats


def error(results: Iterable[Result]) -> float:
    """Return the geometric mean of how far modelled times are off, as a factor minus 1."""
    return geometric_mean(max(one.ratio, 1 / one.ratio) for one in results) - 1


def order(results: Sequence[Result]) -> tuple[int, int]:
    """Return how many pairs of rows of one series are in the published order, and how many there are."""
    right = total = 0
    for left, other in itertools.combinations(results, 2):
        if left.row.series == other.row.series and left.row.value != other.row.value:
            total += 1
            right += (left.modelled < other.modelled) == (left.row.value < other.row.value)
    return right, total


def table(results: Sequence[Result]) -> str:
    """Return all rows as a Markdown table, with the summary behind it."""
    lines = [
        "| row | target, level | half | published | modelled | ratio | left out | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        row = one.row
        verdict = "met" if one.met else "**missed**"
        if "projection" in row.series:
            verdict = "the vendor's projection"
        if row.repeats:
            verdict = f"the row of {row.repeats}, counted there"
        left = "" if one.left_out is None else f"{one.left_out:.2f}"
        lines.append(
            f"| {row.id} | `{row.profile}`, {row.level} | {row.half} | {row.value:g} {row.unit} "
            f"| {one.modelled:.4g} | {one.ratio:.2f} | {left} | {verdict} |"
        )
    timed = [one for one in results if is_time(one.row)]
    counts = [
        one
        for one in results
        if one.row.quantity == "sections" and "projection" not in one.row.series
    ]
    lines.append("")
    for name, chosen in (
        ("all", timed),
        ("fitted", [one for one in timed if one.row.half == FITTED]),
        ("judged", [one for one in timed if one.row.half != FITTED]),
    ):
        if chosen:
            met = sum(one.met for one in chosen)
            lines.append(
                f"- {name} times and rates: {met} of {len(chosen)} within {LOW:g} to {HIGH:g}, "
                f"geometric mean of the error {error(chosen):.0%}"
            )
    lines += _left_out_lines(timed)
    right, total = order(timed)
    lines.append(f"- pairs of rows of one series in the published order: {right} of {total}")
    if counts:
        met = sum(one.met for one in counts)
        lines.append(
            f"- numbers of sections within a factor of {SECTIONS:g}: {met} of {len(counts)}"
        )
    return "\n".join(lines)


def _left_out_lines(timed: Sequence[Result]) -> Iterator[str]:
    """Say how far rows are off that the fit has not seen."""
    known = [replace(one, ratio=one.left_out) for one in timed if one.left_out is not None]
    for name, chosen in (
        ("transformers", [one for one in known if one.row.program not in SINGLE]),
        (
            "single products and activations",
            [one for one in known if one.row.program in SINGLE[:2]],
        ),
        ("convolutions", [one for one in known if one.row.program == SINGLE[2]]),
    ):
        if chosen:
            within = sum(0.75 <= one.ratio <= 1.33 for one in chosen)
            yield (
                f"- left out, {name}: geometric mean of the error {error(chosen):.0%}, "
                f"{within} of {len(chosen)} within 0.75 to 1.33"
            )


def published_programs(results: Sequence[Result]) -> str:
    """Return the programs of published times with their ratios, as TOML for reports."""
    lines = [
        "# Written by `python -m benchmarks fidelity --page`: programs of published times, with modelled over published",
        "# time by a fit that has not seen the row.",
    ]
    ratios = {one.row.id: one.left_out for one in results}
    for one in results:
        row = one.row
        # A repeated row has the ratio of the one that it repeats.
        ratio = ratios.get(row.id.replace(row.series, row.repeats) if row.repeats else row.id)
        if row.quantity == "sections" or "projection" in row.series or ratio is None:
            continue
        own = signature(planned(row).manifest)
        fields: dict[str, object] = {
            "id": row.id,
            "target": own.target,
            "level": own.level,
            "training": own.training,
            "rdus": own.rdus,
            "types": sorted(own.types),
            "operators": sorted(own.operators),
            "flops": own.flops,
            "bytes": own.bytes,
            "ratio": round(ratio, 3),
        }
        lines += [
            "",
            "[[rows]]",
            *(f"{key} = {json.dumps(value)}" for key, value in fields.items()),
        ]
    return "\n".join(lines) + "\n"


def placed(page: str, begin: str, end: str, text: str) -> str:
    """Return a page with other text between two comments.

    Args:
        page: The page.
        begin: The comment before the text.
        end: The comment behind it.
        text: What shall be between them.

    Raises:
        ValueError: The page has not both comments, one behind the other.
    """
    before, found, rest = page.partition(begin)
    _, also_found, after = rest.partition(end)
    if not (found and also_found):
        raise ValueError(f"{PAGE.name} must have {begin} and behind it {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def main(arguments_: Sequence[str] | None = None) -> None:
    """Model the rows that are asked for, print the tables, and write the page if it is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fidelity", description=__doc__)
    parser.add_argument(
        "--rows", default="", help="only rows, or statements, whose id has this text"
    )
    parser.add_argument(
        "--statements", action="store_true", help="only statements; without it they come behind all rows"
    )  # fmt: skip
    parser.add_argument("--page", action="store_true", help="write docs/fidelity.md and the bands")
    parser.add_argument("--fit", action="store_true", help="fit the targets' constants, and stop")
    arguments = parser.parse_args(arguments_)
    if arguments.page and arguments.rows:
        parser.error("--page writes whole tables: leave out --rows")
    if arguments.fit:
        fit(print)
        return
    results: list[Result] = []
    gains: list[Statement] = []
    constants = ""
    if not arguments.statements:
        results, constants = left_out(modelled(arguments.rows))
        print(table(results), constants, sep="\n\n")
    if arguments.statements or not arguments.rows:
        gains = _statements(arguments.rows)
        print(statements_table(gains))
    if arguments.page:
        _write_page(results, constants, gains)


def modelled(text: str) -> list[Result]:
    """Return the rows whose ids have a text, modelled one after the other."""
    results = []
    for row in published_rows():
        if text in row.id:
            results.append(result(row))
            print(row.id, f"{results[-1].ratio:.3f}", file=sys.stderr, flush=True)
    return results


def left_out(results: Sequence[Result]) -> tuple[list[Result], str]:
    """Return results with the ratios of a fit that has not seen them, and what constants rest on as a table."""
    compiled = [
        Compiled(
            one.row,
            load_target(one.row.profile).summary,
            program_terms(planned(one.row), one.row.replicas),
        )
        for one in results
        if is_time(one.row)
    ]
    ratios = leave_one_out(compiled)
    lines = ["| constant | programs | most by | |", "|---|---|---|---|"]
    for (device, path), (count, first, share) in weight_of_rows(compiled).items():
        most = (first, f"{share:.0%}") if count else ("none: its prior", "")
        lines.append(f"| `{device}` {path} | {count} | {most[0]} | {most[1]} |")
    return [replace(one, left_out=ratios.get(one.row.id)) for one in results], "\n".join(lines)


def _statements(text: str) -> list[Statement]:
    chosen = []
    for one in statements(text):
        chosen.append(one)
        values = " ".join(f"{finding.value:.3g}" for finding in one.findings)
        print(one.id, values or "not computed", file=sys.stderr, flush=True)
    return chosen


def _write_page(results: Sequence[Result], constants: str, gains: Sequence[Statement]) -> None:
    """Write the tables into the page, and the bands behind them where rows were modelled."""
    page = PAGE.read_text(encoding="utf-8")
    page = placed(page, BEGIN_STATEMENTS, END_STATEMENTS, statements_table(gains))
    if results:
        page = placed(page, BEGIN, END, table(results))
        page = placed(page, BEGIN_CONSTANTS, END_CONSTANTS, constants)
    PAGE.write_text(page, encoding="utf-8")
    if results:
        BANDS.write_text(published_programs(results), encoding="utf-8")


if __name__ == "__main__":
    main()
