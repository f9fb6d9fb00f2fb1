"""What a report says of rules that left nodes as they are."""

from __future__ import annotations

from rich.console import Console

from samba_onnx.pef.rewrite_records import LegalisedRule
from samba_onnx.report.legalisation import left_table


def of_graph(graph: str, *left: str, **refused: str) -> LegalisedRule:
    return LegalisedRule("pad", graph, (), {}, left, 0, 0, 0.0, refused)


def text(*rules: LegalisedRule) -> str:
    table = left_table(rules, None)
    if table is None:
        return ""
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_nodes_that_several_graphs_left_are_all_named() -> None:
    shown = text(
        of_graph("first", "one", three="its pads are computed"),
        of_graph("second", "two", four="its pads are computed"),
    )
    assert all(name in shown for name in ("one", "two", "three", "four"))
    assert shown.count("would make no run shorter") == shown.count("its pads are computed") == 1


def test_no_table_where_nothing_was_left() -> None:
    assert text(of_graph("first")) == ""
