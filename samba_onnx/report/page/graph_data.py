"""What the script of a page draws: columns of whole numbers, and each text once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from samba_onnx.report.page.graph_layout import positions
from samba_onnx.report.page.repeats import Repeat, find_repeats, node_tokens
from samba_onnx.report.program.program_records import EdgeReport, NodeReport, ProgramReport
from samba_onnx.report.report import Report
from samba_onnx.report.report_records import CallReport
from samba_onnx.report.units import printable, shape_text

__all__ = ["graph_json"]

_NANOSECONDS: Final = 1e9
"""Whole nanoseconds take a third of the characters that fractions of seconds do."""

_LONGEST_SHARED: Final = 255
"""What two hexadecimal digits hold."""


class _Texts:
    """Texts, each with the number that stands for it."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Return the number of a text."""
        return self._numbers.setdefault(printable(text), len(self._numbers))

    def all(self) -> list[str]:
        """Return the texts by number."""
        return list(self._numbers)


def graph_json(report: Report, errors: Mapping[str, float] | None = None) -> str:
    """Return the data of the graph, for an element of a page that is no script.

    Args:
        report: The report.
        errors: Errors of values by name, as shares of what is allowed; None where nothing was compared.

    Returns:
        JSON in one line that ends no element; ``null`` for a report without its program.
    """
    program = report.program
    if program is None or not program.nodes:
        return "null"
    data = _data(report, program)
    if errors is not None:
        data["node"]["error"] = _node_errors(program, errors)
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    # Names are a stranger's: within a page, none may close the element or open a comment.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _node_errors(program: ProgramReport, errors: Mapping[str, float]) -> list[float]:
    """Return the largest error of what each node writes; -1 where nothing of it was compared."""
    largest = [-1.0] * len(program.nodes)
    for edge in program.edges:
        if edge.source is not None and edge.value in errors:
            # Four digits: what is beyond all bounds is as far beyond with a thousandth more.
            error = float(f"{min(errors[edge.value], 1e9):.4g}")
            largest[edge.source] = max(largest[edge.source], error)
    return largest


def _data(report: Report, program: ProgramReport) -> dict[str, Any]:
    """Return the data as columns: a name of a field for each of ten thousand nodes would be most of a page."""
    texts = _Texts()
    stages = _stages(report, program.nodes)
    order = {stage["id"]: number for number, stage in enumerate(stages)}
    nodes, edges = program.nodes, program.edges
    drawing = _Drawing(program, stages)
    return {
        "stages": stages,
        "layers": find_repeats([_stage_token(stage) for stage in stages], 1),
        "links": [
            # Inputs and outputs of the graph are no stage.
            [order.get(link.source, -1), order.get(link.target, -1), link.values, link.bytes]
            for link in program.stage_edges
        ],
        "repeats": drawing.repeats,
        "folded": drawing.folded,
        "node": {
            "name": _front_coded([node.name for node in nodes]),
            "op": [texts.number(node.operator) for node in nodes],
            "module": [texts.number(node.module) for node in nodes],
            "line": [texts.number(node.location) for node in nodes],
            "why": [texts.number(node.reason) for node in nodes],
            "flops": [node.flops for node in nodes],
            "weights": [node.weight_bytes for node in nodes],
            "time": [round(node.modelled_seconds * _NANOSECONDS) for node in nodes],
            "x": [drawing.places[node.id][0] for node in nodes],
            "y": [drawing.places[node.id][1] for node in nodes],
        },
        "edge": {
            "name": _front_coded([edge.value for edge in edges]),
            "type": [texts.number(_type_text(edge)) for edge in edges],
            "bytes": [-1 if edge.bytes is None else edge.bytes for edge in edges],
            "from": [-1 if edge.source is None else edge.source for edge in edges],
            "to": [list(edge.targets) for edge in edges],
        },
        "texts": texts.all(),
    }


def _front_coded(names: Sequence[str]) -> list[str]:
    """Return names without the beginning that each shares with the one before, behind its length in two digits.

    Names of a model are paths, of which neighbours have most in common: a third of the characters is left.
    """
    coded, before = [], ""
    for name in map(printable, names):
        # Within what scripts count as one character each.
        pairs = zip(before[:_LONGEST_SHARED], name, strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda p: p[0] == p[1] <= "\uffff", pairs))
        coded.append(f"{shared:02x}{name[shared:]}")
        before = name
    return coded


def _type_text(edge: EdgeReport) -> str:
    """Return ``float [1, 16, 64]``."""
    return f"{edge.type.removeprefix('tensor(').removesuffix(')')} {shape_text(edge.shape)}"


def _stages(report: Report, nodes: Sequence[NodeReport]) -> list[dict[str, Any]]:
    """Return sections and fallbacks in the order of the schedule, each once, with where its nodes begin."""
    sections = {section.id: section for section in report.sections}
    calls: dict[int, tuple[str, CallReport]] = {}
    for each in report.graphs:
        for step in each.schedule:
            calls.setdefault(step.stage, (each.name, step))
    # Nodes of a stage have ids in a row.
    members = {number: list(own) for number, own in itertools.groupby(nodes, lambda n: n.stage)}
    stages = []
    for number, (graph, call) in calls.items():
        own = members.get(number, [])
        section = sections.get(number)
        seconds = section.modelled_seconds if section else sum(n.modelled_seconds for n in own)
        stages.append(
            {
                "id": number,
                "name": printable(call.name),
                "home": call.home,
                "type": call.type,
                "graph": printable(graph),
                "time": round(seconds * _NANOSECONDS),
                "first": own[0].id if own else 0,
                "count": len(own),
                "flops": section.flops if section else sum(node.flops for node in own),
                "bound": section.dominant if section else "",
            }
        )
    return stages


def _stage_token(stage: dict[str, Any]) -> tuple[object, ...]:
    """Return what makes stages equal layers: all that is shown of them but their names."""
    return tuple(stage[key] for key in ("home", "type", "graph", "count", "flops", "time"))


class _Drawing:
    """Where the nodes of each stage stand, with equal layers one after the other and folded into one."""

    def __init__(self, program: ProgramReport, stages: Sequence[dict[str, Any]]) -> None:
        self.places: dict[int, tuple[int, int]] = {}
        """By node, with all layers shown."""
        self.repeats: dict[int, list[Repeat]] = {}
        """By index of the stage, those that have any: indices of nodes begin at 0 in each."""
        self.folded: dict[int, list[list[int]]] = {}
        """By index of the stage: nodes that are shown when layers are folded, and their places."""
        owners = [node.stage for node in program.nodes]
        inside: dict[int, list[EdgeReport]] = {}
        for edge in program.edges:
            ends = {owners[end] for end in (edge.source, *edge.targets) if end is not None}
            for stage in ends:
                inside.setdefault(stage, []).append(edge)
        for number, entry in enumerate(stages):
            first, count = entry["first"], entry["count"]
            self._add(number, program.nodes[first : first + count], inside.get(entry["id"], []))

    def _add(self, number: int, nodes: Sequence[NodeReport], edges: Sequence[EdgeReport]) -> None:
        ids = [node.id for node in nodes]
        own = set(ids)
        pairs = {
            (edge.source, target)
            for edge in edges
            if edge.source in own
            for target in edge.targets
            if target in own and edge.source is not None
        }
        self.places |= positions(ids, pairs)
        first = ids[0] if ids else 0
        repeats = find_repeats(node_tokens(nodes, edges, first))
        if not repeats:
            return
        shown = {node: node for node in ids}
        for repeat in repeats:
            begin = first + repeat.start
            for node in range(begin + repeat.period, first + repeat.end):
                shown[node] = begin + (node - begin) % repeat.period
        # What goes from one layer to the next would lead back within the one that is shown.
        folded = {(shown[a], shown[b]) for a, b in pairs if shown[a] < shown[b]}
        places = positions([node for node in ids if shown[node] == node], folded)
        self.repeats[number] = repeats
        self.folded[number] = [[node, *places[node]] for node in sorted(places)]
