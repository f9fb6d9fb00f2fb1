"""Files for viewers that others make, read back as these read them."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

import samba_onnx
from samba_onnx.errors import UsageError
from samba_onnx.report.viewers.model_explorer import model_explorer_data, model_explorer_graph
from samba_onnx.report.viewers.trace import modelled_events, trace_bytes
from tests.cli.conftest import samba_port
from tests.report.samples import detector

__all__ = ["samba_port"]

MODEL = """
    <ir_version: 8, opset_import: ["" : 18]>
    net (float[8, 16, 16] x) => (float[8, 16, 16] y) {
        a = MatMul(x, x)
        b = LpPool <kernel_shape = [1]> (a)
        c = Exp(b)
        y = MatMul(c, a)
    }
"""


@pytest.fixture(scope="module")
def report() -> samba_onnx.Report:
    model = onnx.parser.parse_model(MODEL)
    for node in model.graph.node:
        node.name = f"/layers.0/{node.op_type}"
    return samba_onnx.Report.from_manifest(samba_onnx.analyze(model, placement="strict"))


def test_tasks_end_when_the_run_does(report: samba_onnx.Report) -> None:
    assert report.program is not None
    tasks = report.program.tasks
    assert max(task.end_seconds for task in tasks) == pytest.approx(
        report.modelled_time.total_seconds
    )
    calls = [task for task in tasks if not task.symbol]
    assert [task.call for task in calls] == [call.id for call in report.graphs[0].schedule]
    copies = [task for task in tasks if task.symbol]
    assert len(copies) == len(report.graphs[0].run_transfers)
    # A resource does one thing at a time.
    for resource in {task.resource for task in tasks}:
        own = [task for task in tasks if task.resource == resource]
        pairs = itertools.pairwise(own)
        assert all(one.end_seconds <= other.begin_seconds for one, other in pairs)


def test_model_explorer_has_every_node_and_edge(report: samba_onnx.Report) -> None:
    assert report.program is not None
    (graph,) = json.loads(model_explorer_graph(report))["graphs"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert Counter(node["label"] for node in graph["nodes"]) == {
        "x": 1,
        "MatMul": 2,
        "LpPool": 1,
        "Exp": 1,
    }
    assert {node["namespace"] for node in graph["nodes"]} == {"inputs", "layers/0"}
    edges = [edge for node in graph["nodes"] for edge in node.get("incomingEdges", [])]
    assert len(edges) == sum(len(edge.targets) for edge in report.program.edges)
    for edge in edges:
        outputs = {output["id"] for output in nodes[edge["sourceNodeId"]]["outputsMetadata"]}
        assert edge["sourceNodeOutputId"] in outputs
    (on_cpu,) = (node for node in graph["nodes"] if "style" in node)
    assert {"key": "runs on", "value": "CPU"} in on_cpu["attrs"]


def test_model_explorer_has_the_time_of_every_node(report: samba_onnx.Report) -> None:
    (data,) = json.loads(model_explorer_data(report)).values()
    (graph,) = json.loads(model_explorer_graph(report))["graphs"]
    assert data["results"].keys() <= {node["id"] for node in graph["nodes"]}
    microseconds = sum(result["value"] for result in data["results"].values())
    time = report.modelled_time
    assert microseconds * 1e-6 == pytest.approx(time.sections_seconds + time.cpu_seconds, rel=0.2)


def test_a_trace_is_read_back(report: samba_onnx.Report) -> None:
    pytest.importorskip("perfetto")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    assert report.program is not None
    trace = Trace()
    trace.ParseFromString(trace_bytes(modelled_events(report), "run.pftrace"))
    names = {
        p.track_descriptor.uuid: p.track_descriptor.name
        for p in trace.packet
        if p.HasField("track_descriptor")
    }
    assert {"RDU", "host → RDU", "RDU → host", "CPU", "hbm bytes"} <= set(names.values())
    open_slices: Counter[int] = Counter()
    begun: list[Any] = []
    for packet in trace.packet:
        event = packet.track_event
        if packet.HasField("track_event") and event.type != TrackEvent.TYPE_COUNTER:
            open_slices[event.track_uuid] += 1 if event.type == TrackEvent.TYPE_SLICE_BEGIN else -1
            assert open_slices[event.track_uuid] in (0, 1)
            begun += [packet] if event.type == TrackEvent.TYPE_SLICE_BEGIN else []
    assert not any(open_slices.values())
    assert len(begun) == len(report.program.tasks)
    flows = Counter(flow for packet in begun for flow in packet.track_event.flow_ids)
    assert flows
    assert min(flows.values()) >= 2
    last = max(packet.timestamp for packet in trace.packet if packet.HasField("track_event"))
    assert last == round(report.modelled_time.total_seconds * 1e9)


def test_a_trace_in_json_says_the_same(report: samba_onnx.Report) -> None:
    assert report.program is not None
    events = json.loads(trace_bytes(modelled_events(report), "run.json"))["traceEvents"]
    assert Counter(event["ph"] for event in events)["X"] == len(report.program.tasks)
    starts = [event["id"] for event in events if event["ph"] == "s"]
    assert len(starts) == len(set(starts))


def test_a_report_without_times_of_calls_has_no_trace() -> None:
    with pytest.raises(UsageError, match="spatial mapping"):
        modelled_events(samba_onnx.Report.from_manifest(detector()))


def test_the_command_writes_them(samba_port: Any, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "net.onnx")
    graph, trace = tmp_path / "graph.json", tmp_path / "run.json"
    answer = samba_port(
        "analyze", tmp_path / "net.onnx", "--model-explorer", graph, "--trace", trace, "-q"
    )
    assert answer.status == 0
    assert json.loads(graph.read_text())["graphs"]
    assert json.loads((tmp_path / "graph.times.json").read_text())
    assert json.loads(trace.read_text())["traceEvents"]
    both = samba_port(
        "analyze", tmp_path / "net.onnx", "--trace", trace, "--what-if", "target=sn30"
    )
    assert both.status == 2


def test_a_run_is_traced_as_it_is_modelled_and_measured(samba_port: Any, tmp_path: Path) -> None:
    samba_onnx.convert(onnx.parser.parse_model(MODEL), tmp_path / "net.pef").close()
    trace = tmp_path / "run.json"
    words = ("--random", 0, "--time-sections", "--trace", trace, "-q")
    assert samba_port("run", tmp_path / "net.pef", *words).status == 0
    events = json.loads(trace.read_text())["traceEvents"]
    processes = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert processes == ["modelled", "measured on this CPU"]
