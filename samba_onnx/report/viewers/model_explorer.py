"""The program of a report as Model Explorer reads it: a graph in layers, and figures of its nodes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from samba_onnx.errors import UsageError
from samba_onnx.report.program.program_records import EdgeReport, NodeReport, ProgramReport
from samba_onnx.report.report import Report
from samba_onnx.report.units import byte_text, flop_text, printable, second_text, shape_text

__all__ = ["model_explorer_data", "model_explorer_graph"]


def model_explorer_graph(report: Report) -> str:
    """Return the JSON of a graph: modules are layers, an attribute says where each node runs, and why.

    Args:
        report: The report, with its program.

    Raises:
        UsageError: It has no program.
    """
    program, name = _program(report), printable(report.model.name)
    stages = {call.stage: call.name for graph in report.graphs for call in graph.schedule}
    operands: defaultdict[int, list[tuple[EdgeReport, int]]] = defaultdict(list)
    results: defaultdict[int, list[EdgeReport]] = defaultdict(list)
    for edge in program.edges:
        if edge.source is not None:
            results[edge.source].append(edge)
        for target in edge.targets:
            operands[target].append((edge, len(operands[target])))
    # An input is a node there, or its edges would begin nowhere.
    inputs = [edge for edge in program.edges if edge.source is None]
    nodes = [_input(edge) for edge in inputs]
    nodes += [
        _node(node, stages.get(node.stage, ""), operands[node.id], results)
        for node in program.nodes
    ]
    return _text({"label": name, "graphs": [{"id": name, "nodes": nodes}]})


def model_explorer_data(report: Report) -> str:
    """Return the JSON of node data: the modelled time of each node, from light to dark.

    Args:
        report: The report, with its program.

    Raises:
        UsageError: It has no program.
    """
    results = {
        str(node.id): {"value": round(node.modelled_seconds * 1e6, 6)}
        for node in _program(report).nodes
    }
    gradient = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#d1622b"}]
    data = {"name": "modelled time (µs)", "results": results, "gradient": gradient}
    return _text({printable(report.model.name): data})


def _program(report: Report) -> ProgramReport:
    if report.program is None:
        raise UsageError("the report has no nodes: it was written by an older version")
    return report.program


def _input(edge: EdgeReport) -> dict[str, Any]:
    return {
        "id": _input_id(edge),
        "label": printable(edge.value),
        "namespace": "inputs",
        "outputsMetadata": [_output(0, edge)],
    }


def _input_id(edge: EdgeReport) -> str:
    """Return an id that no node has: those of nodes are numbers."""
    return f"input {printable(edge.graph)} {printable(edge.value)}"


def _node(
    node: NodeReport,
    stage: str,
    operands: list[tuple[EdgeReport, int]],
    results: Mapping[int, list[EdgeReport]],
) -> dict[str, Any]:
    return {
        "id": str(node.id),
        "label": printable(node.operator),
        # A slash in a name of a module would open a layer that there is not.
        "namespace": "/".join(printable(part).replace("/", "_") for part in node.module.split(".")),
        "attrs": [{"key": key, "value": printable(text)} for key, text in _facts(node, stage)],
        "incomingEdges": [
            {
                "sourceNodeId": _input_id(edge) if edge.source is None else str(edge.source),
                "sourceNodeOutputId": str(
                    0 if edge.source is None else results[edge.source].index(edge)
                ),
                "targetNodeInputId": str(place),
            }
            for edge, place in operands
        ],
        "outputsMetadata": [
            _output(number, edge) for number, edge in enumerate(results.get(node.id, []))
        ],
        # As on our own pages: what is on the CPU is seen without looking for it.
        **({"style": {"backgroundColor": "#fbe6d6"}} if node.home == "cpu" else {}),
    }


def _facts(node: NodeReport, stage: str) -> Iterator[tuple[str, str]]:
    yield "name", node.name
    yield "runs on", node.home.upper()
    yield "section", f"{node.stage} ({stage})"
    # What is empty would only make the panel longer.
    for key, text in (("reason", node.reason), ("line", node.location)):
        if text:
            yield key, text
    yield "modelled time", second_text(node.modelled_seconds)
    yield "work", flop_text(node.flops)
    yield "weights", byte_text(node.weight_bytes)


def _output(number: int, edge: EdgeReport) -> dict[str, Any]:
    kind = edge.type.removeprefix("tensor(").removesuffix(")")
    attributes = [
        {"key": "__tensor_tag", "value": printable(edge.value)},
        {"key": "shape", "value": printable(f"{kind} {shape_text(edge.shape)}")},
    ]
    if edge.bytes is not None:
        attributes.append({"key": "bytes", "value": byte_text(edge.bytes)})
    return {"id": str(number), "attrs": attributes}


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":")) + "\n"
