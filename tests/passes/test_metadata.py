"""Which node's source trace a new node gets."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.metadata import inherit_metadata, origins_of
from tests.passes.rewrites.applying import TRACE, parse
from tests.passes.test_pipeline_runner import TEXT, add_node


def trace_of_new(model: ir.Model, *numbers: int) -> str | None:
    """Return the trace that the node "new" gets when only the nodes at these positions have one."""
    for number, node in enumerate(model.graph):
        if number not in numbers:
            node.metadata_props.clear()
    origins = origins_of(model)
    add_node(model)
    inherit_metadata(model, origins)
    (new,) = [node for node in model.graph if node.name == "new"]
    return new.metadata_props.get(TRACE)


def line(number: int) -> str:
    return f'File "model.py", line {number}, in forward'


def test_a_new_node_has_the_trace_of_the_nodes_around_it() -> None:
    assert trace_of_new(parse(TEXT), 0, 1) == line(
        2
    )  # that of its reader, before that of its feeder
    assert trace_of_new(parse(TEXT), 0) == line(1)
    assert trace_of_new(parse(TEXT)) is None


def test_a_new_node_has_the_trace_of_the_one_that_it_replaces() -> None:
    model = parse(TEXT)
    origins = origins_of(model)
    old = model.graph[0]
    new = ir.Node("", "Abs", [model.graph.inputs[0], None])
    new.outputs[0].name = old.outputs[0].name
    ir.convenience.replace_nodes_and_values(
        model.graph, old, [old], [new], old.outputs, new.outputs
    )
    model.graph[1].metadata_props.clear()
    inherit_metadata(model, origins)
    assert new.metadata_props[TRACE] == line(1)


def test_each_new_node_has_a_trace() -> None:
    model = parse(TEXT)
    origins = origins_of(model)
    add_node(model)
    add_node(model)
    inherit_metadata(model, origins)
    assert all(TRACE in node.metadata_props for node in model.graph)


def test_nodes_that_were_there_or_have_a_trace_keep_what_they_have() -> None:
    model = parse(TEXT)
    model.graph[0].metadata_props.clear()
    origins = origins_of(model)
    add_node(model)
    model.graph[1].metadata_props["own"] = "mine"
    inherit_metadata(model, origins)
    assert not model.graph[0].metadata_props
    assert model.graph[1].metadata_props == {"own": "mine"}
