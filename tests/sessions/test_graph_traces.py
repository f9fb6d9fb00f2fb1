"""Graphs that are compiled together come from traces, each from one."""

from __future__ import annotations

import pytest

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.graph import FwdGraph
from samba_onnx.sessions.graph_traces import GraphTraces
from tests.sessions.conftest import Compiled, Parts


def test_graphs_are_added_by_their_outputs(parts: Parts, compiled: Compiled) -> None:
    traces = parts.traces
    with pytest.raises(UsageError, match=r"^there are no graphs to compile: add some"):
        traces.added()
    first, second = (
        parts.tracer.trace_multigraph(compiled.model, compiled.inputs) for _ in range(2)
    )
    traces.add_graph(FwdGraph(compiled.inputs, first, name="one"))
    traces.add_graph(FwdGraph(compiled.inputs, second[:1], name="two"))
    assert [(traced.name, traced.outputs) for traced in traces.added()] == [
        ("one", first),
        ("two", second),
    ]
    with pytest.raises(UsageError, match="there is a graph 'one' already"):
        traces.add_graph(FwdGraph(compiled.inputs, second, name="one"))
    traces.add_graph(FwdGraph(compiled.inputs, first, name="one"), overwrite=True)
    assert [traced.name for traced in traces.added()] == ["two", "one"]
    with pytest.raises(UsageError, match="not those of one trace"):
        traces.add_graph(FwdGraph(compiled.inputs, (first[0], second[1]), name="mixed"))


def test_only_graphs_are_added() -> None:
    with pytest.raises(UsageError, match="a graph is SambaTensor; give a"):
        GraphTraces().add_graph(samba.ones(1))  # type: ignore[arg-type]
