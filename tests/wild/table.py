"""The table of outcomes that may only get better: reading, comparing, writing, and its summary."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.json_tables import read_table, write_table
from tests.wild.outcome import RIGHT, Outcome

PATH: Final = Path(__file__).with_name("expected.json")

UPDATE: Final = "run `python -m tests.wild` to write it"

Table = Mapping[str, Outcome]


def read(path: Path = PATH) -> dict[str, Outcome]:
    """Return the outcomes by subject that were written last."""
    return read_table(path, Outcome)


def write(table: Table, path: Path = PATH) -> None:
    """Write outcomes, one subject a line, in the order of their names."""
    write_table(path, {name: outcome.as_json() for name, outcome in table.items()})


def difference(outcome: Outcome, expected: Outcome | None) -> str:
    """Return in what an outcome is not that of the table; empty where it is.

    Args:
        outcome: What was measured.
        expected: What the table has; None for a subject that it does not know.
    """
    if expected is None:
        return f"not in the table: {UPDATE}"
    if outcome == expected:
        return ""
    names = [field.name for field in dataclasses.fields(outcome) if field.compare]
    pairs = [(name, getattr(expected, name), getattr(outcome, name)) for name in names]
    changes = [f"{name}: {old!r} -> {new!r}" for name, old, new in pairs if old != new]
    if outcome.badness > expected.badness:
        return f"worse than the table: {'; '.join(changes)}"
    better = "better than" if outcome.badness < expected.badness else "not as in"
    return f"{better} the table: {'; '.join(changes)}; {UPDATE}"


def on_this_processor(name: str, outcome: Outcome, expected: Outcome | None) -> Outcome | None:
    """Return what the table has, with the nodes that a tool wrote here where these depend on the processor.

    At its level ``all`` onnxruntime lays convolutions out for the processor that it runs on: blocks of 16 channels
    with AVX-512, of 8 without, so that another number of nodes is laid out. What comes of the model counts all the same:
    its numbers, what falls back and why, and what is copied.

    Args:
        name: The subject.
        outcome: What was measured.
        expected: What the table has.
    """
    is_laid_out = name.startswith("onnxruntime/") and name.endswith("-all")
    if expected is None or not is_laid_out or outcome.original == expected.original:
        return expected
    on_cpu = expected.nodes - expected.on_rdu
    return dataclasses.replace(
        expected,
        original=outcome.original,
        nodes=outcome.nodes,
        on_rdu=outcome.nodes - on_cpu,
    )


def is_worse(outcome: Outcome, expected: Outcome | None) -> bool:
    """Return whether an outcome is worse than that of the table."""
    return expected is not None and outcome.badness > expected.badness


def summary(table: Table) -> str:
    """Return the table's summary as Markdown: a row per tool, and one for all.

    Args:
        table: By subject; what stands before the slash is the tool.
    """
    tools = collections.defaultdict[str, list[Outcome]](list)
    for name, outcome in sorted(table.items()):
        tools[name.partition("/")[0]].append(outcome)
    lines = [
        "| tool | models | right | wholly on the RDU | nodes written | nodes in PEFs | of them on the RDU |",
        "|---|---|---|---|---|---|---|",
        *(_row(tool, outcomes) for tool, outcomes in tools.items()),
        _row("all", list(table.values())),
    ]
    return "\n".join(lines) + "\n"


def share(part: int, whole: int) -> str:
    """Return a share in percent, rounded down: all is only said of all."""
    return f"{part * 1000 // max(whole, 1) / 10:g} %"


def _row(title: str, outcomes: list[Outcome]) -> str:
    nodes = sum(one.nodes for one in outcomes)
    on_rdu = sum(one.on_rdu for one in outcomes)
    whole = sum(one.nodes > 0 and not one.on_cpu for one in outcomes)
    cells = [
        title,
        len(outcomes),
        sum(one.result == RIGHT for one in outcomes),
        whole,
        f"{sum(one.original for one in outcomes):,}",
        f"{nodes:,}",
        f"{on_rdu:,} ({share(on_rdu, nodes)})",
    ]
    return f"| {' | '.join(map(str, cells))} |"
