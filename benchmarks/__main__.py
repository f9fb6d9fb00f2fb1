"""Measure everything and print one table: ``python -m benchmarks [--quick] [PART ...]``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import (
    command_line,
    convert,
    convolution_curve,
    data_parallel,
    data_preparation,
    fidelity,
    inference,
    load,
    nodes,
    precision,
    scale,
    scaling,
    steady,
    training,
)
from benchmarks.machine import machine, processor
from benchmarks.table import Row, markdown, records

PARTS = (
    "convert",
    "nodes",
    "steady",
    "load",
    "command_line",
    "inference",
    "training",
    "data_parallel",
    "scaling",
    "data_preparation",
    "precision",
    "scale",
)


def main() -> None:
    """Run the parts that are asked for, all by default, and print their rows as Markdown."""
    if sys.argv[1:2] == ["fidelity"]:  # modelled against published times: nothing of it is measured
        fidelity.main(sys.argv[2:])
        return
    if sys.argv[1:2] == [
        "convolutions"
    ]:  # the curve of convolutions: nothing of it is measured either
        convolution_curve.main()
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"all, or some of {', '.join(PARTS)}"
    )
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    parser.add_argument("--json", action="store_true", help="print a document, not a table")
    arguments = parser.parse_args()
    if "all" in arguments.parts:
        arguments.parts = list(PARTS)
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    folder = Path(tempfile.mkdtemp(prefix="samba-benchmarks-"))
    wanted = arguments.parts or PARTS
    rows: list[Row] = []
    generators = {
        "convert": lambda: convert.rows(folder / "convert", quick=arguments.quick),
        "nodes": lambda: nodes.rows(folder / "nodes", quick=arguments.quick),
        "steady": lambda: steady.rows(folder / "steady"),
        "load": lambda: load.rows(folder / "load", quick=arguments.quick),
        "inference": lambda: inference.rows(folder / "inference", quick=arguments.quick),
        "training": lambda: training.rows(folder / "training", quick=arguments.quick),
        "data_parallel": lambda: data_parallel.rows(folder / "parallel", quick=arguments.quick),
        "scaling": lambda: scaling.rows(folder / "scaling", quick=arguments.quick),
        "command_line": lambda: command_line.rows(folder / "cli", quick=arguments.quick),
        "precision": lambda: precision.rows(folder / "precision", quick=arguments.quick),
        "scale": lambda: scale.rows(quick=arguments.quick),
        "data_preparation": lambda: data_preparation.rows(folder / "data", quick=arguments.quick),
    }
    try:
        for part in wanted:
            for row in generators[part]():
                print(row.what, row.baseline, row.ratio, row.note, file=sys.stderr, flush=True)
                rows.append(row)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(_document(rows) if arguments.json else _page(rows))


def _page(rows: Sequence[Row]) -> str:
    """Return the rows as a table, with the machine that they were measured on."""
    return f"{processor()}; {os.cpu_count()} cores\n\n{markdown(rows)}"


def _document(rows: Sequence[Row]) -> str:
    """Return the rows as JSON, with the machine and what it reaches, by number of threads."""
    rates = {threads: asdict(machine(threads)) for threads in sorted({1, os.cpu_count() or 1})}
    document = {"processor": processor(), "cores": os.cpu_count(), "rates": rates}
    return json.dumps(document | {"rows": records(rows)}, indent=1)


if __name__ == "__main__":
    main()
