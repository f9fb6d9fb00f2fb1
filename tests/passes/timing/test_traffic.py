from __future__ import annotations

from samba_onnx.passes.timing.traffic import moved_bytes
from tests.passes.planning.plan_samples import parse

CACHE = """g (float[8,4] old, int64[1,1] i, float[1,4] new) => (float[8,4] y{more}) {{
    y = ScatterND (old, i, new)
    {rest}
}}"""


def test_of_a_table_only_the_rows_are_read() -> None:
    graph = parse("g (float[100,4] t, int64[3] i) => (float[3,4] y) { y = Gather (t, i) }").graph
    assert moved_bytes(list(graph), lambda value: value.name or "") == {graph.inputs[0]: 48}
    both = parse("""g (float[100,4] t, int64[3] i) => (float[3,4] y, float[100,4] z) {
        y = Gather (t, i)
        z = Relu (t)
    }""").graph
    assert moved_bytes(list(both), lambda value: value.name or "") == {}


def test_what_stays_in_its_place_is_written_in_part() -> None:
    graph = parse(CACHE.format(more="", rest="")).graph
    old, new = graph.inputs[0], graph.outputs[0]
    assert moved_bytes(list(graph), lambda _: "cache") == {new: 16, old: 0}
    assert moved_bytes(list(graph), lambda value: value.name or "") == {}


def test_what_the_section_reads_of_it_is_read() -> None:
    graph = parse(CACHE.format(more=", float[8,4] z", rest="z = Relu (y)")).graph
    assert moved_bytes(list(graph), lambda _: "cache") == {graph.outputs[0]: 16}


def test_every_node_is_looked_at() -> None:
    graph = parse("""g (float[8,4] a, float[8,4] old, int64[1,1] i, float[1,4] new)
    => (float[8,4] x, float[8,4] y) {
        b = Relu (a)
        x = ScatterND (b, i, new)
        y = ScatterND (old, i, new)
    }""").graph
    places = {"old": "cache", "y": "cache"}
    moved = moved_bytes(list(graph), lambda value: places.get(value.name or "", value.name or ""))
    assert moved == {graph.outputs[1]: 16, graph.inputs[1]: 0}


def test_what_is_computed_into_its_place_is_written_as_a_whole() -> None:
    text = "g (float[8,4] x, float low, float high) => (float[8,4] y) { y = Clip (x, low, high) }"
    assert moved_bytes(list(parse(text).graph), lambda _: "region") == {}
