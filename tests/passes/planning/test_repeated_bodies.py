"""What a repeated body costs: the work of all steps, one behind the other, and the memory of one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.planning.placement import Supporting, place
from samba_onnx.passes.planning.sectioning import sram_bytes
from samba_onnx.passes.targets import Target
from samba_onnx.passes.targets.reasons import ReasonCode
from samba_onnx.passes.timing.hosts import host_seconds, load_host
from samba_onnx.passes.timing.matrix_products import units_of
from samba_onnx.passes.timing.node_work import node_flops
from samba_onnx.passes.timing.section_terms import SectionTerms, section_terms
from samba_onnx.passes.timing.traffic import data_reads
from samba_onnx.program.dataflow import name_of
from samba_onnx.program.repetition import repetition, step_nodes, steps_of
from tests.passes.rewrites.legalisation.legalising import TARGET, prepared

STEP = """h1 = MatMul(s, w)
    h2 = Add(h1, e)
    t = Tanh(h2)
    o = Neg(t)"""


def model(steps: int) -> ir.Model:
    return prepared(
        f"""g (float[2,64] s, float[{steps},2,64] e, float[64,64] w) => (float[2,64] last, float[{steps},2,64] all) {{
  last, all = Scan<num_scan_inputs = 1, body = b (float[2,64] s, float[2,64] e) => (float[2,64] t, float[2,64] o) {{
    {STEP}
  }}>(s, e)
}}""",
        {"w": np.zeros((64, 64), np.float32)},
    )


def one_step() -> ir.Model:
    """Return the body as a graph of its own."""
    return prepared(
        f"g (float[2,64] s, float[2,64] e, float[64,64] w) => (float[2,64] t, float[2,64] o) {{ {STEP} }}",
        {"w": np.zeros((64, 64), np.float32)},
    )


def terms(graph: ir.Graph) -> SectionTerms:
    return section_terms(tuple(graph), {}, TARGET.summary)


@pytest.mark.parametrize("steps", [1, 7, 500])
def test_work_is_that_of_all_steps_and_none_shares_units_with_another(steps: int) -> None:
    whole, single = terms(model(steps).graph), terms(one_step().graph)
    assert whole.flops == steps * single.flops
    assert whole.on_chip == steps * single.on_chip
    assert whole.path == steps * single.path == steps * 4
    assert [(a.operations, a.filled) for a in whole.arithmetic] == [
        (steps * a.operations, steps * a.filled) for a in single.arithmetic
    ]
    time, step = whole.time(TARGET.summary), single.time(TARGET.summary)
    assert time.launch == step.launch
    assert time.compute == pytest.approx(steps * step.compute)
    assert time.fill == pytest.approx(steps * step.fill)


def test_units_and_memory_are_those_of_one_step() -> None:
    few, many = model(3).graph, model(900).graph
    body = tuple(one_step().graph)
    (short,), (long,) = tuple(few), tuple(many)
    needed = sum(units_of(node, TARGET.summary) for node in body)
    assert units_of(short, TARGET.summary) == units_of(long, TARGET.summary) == needed
    # Beside what one step has on the chip: all that is read and written, a tile of each.
    outside = {900: 2 * 900, 3: 2 * 3}
    for steps, node in ((3, short), (900, long)):
        streamed = outside[steps] * 2 * 64 * 4
        assert sram_bytes((node,), TARGET) == sram_bytes(body, TARGET) + streamed + 2 * 2 * 64 * 4


def test_a_product_in_front_of_a_path_counts_with_it() -> None:
    graph = model(5).graph
    tanh = ir.node("Tanh", [graph[0].outputs[0]])
    graph.append(tanh)
    assert terms(graph).path == 5 * 4 + 1


def test_sizes_that_a_body_reads_are_part_of_it() -> None:
    graph = prepared(
        """g (float[2,6] s, float[9,2,4] e) => (float[2,6] last, float[9,2,2] all) <int64[2] parts = {4, 2}> {
  last, all = Scan<num_scan_inputs = 1, body = b (float[2,6] h, float[2,4] v) => (float[2,6] t, float[2,2] o) {
    a, k = Split<axis = 1>(h, parts)
    c = Add(a, v)
    t = Concat<axis = 1>(k, c)
    o = Tanh(k)
  }>(s, e)
}"""
    ).graph
    assert [name_of(value) for value in data_reads(graph[0], TARGET)] == ["s", "e"]


def test_time_on_the_cpu_is_that_of_all_steps() -> None:
    host = load_host()
    times = [host_seconds(model(steps).graph[0], host) for steps in (10, 20)]
    assert times[0] is not None
    assert times[1] == pytest.approx(2 * times[0])


def test_repetitions_are_recognised_by_form() -> None:
    (node,) = model(12).graph
    found = repetition(node)
    assert found is not None
    assert (found.steps, found.states, steps_of(node)) == (12, 1, 12)
    assert [inner.op_type for inner in step_nodes([node])] == ["MatMul", "Add", "Tanh", "Neg"]
    assert repetition(found.body[0]) is None
    assert steps_of(found.body[0]) == 1
    assert node_flops(node) == 12 * sum(map(node_flops, found.body))
    node.attributes["num_scan_inputs"] = ir.AttrInt64("num_scan_inputs", 3)
    assert repetition(node) is None


def _smaller(target: Target, **figures: int) -> Target:
    summary = target.summary
    if "units" in figures:
        assert summary.timing is not None
        timing = replace(summary.timing, compute_units=figures["units"])
        return replace(target, summary=replace(summary, timing=timing))
    sram, *others = summary.tiers
    tiers = (replace(sram, bytes=figures["bytes"]), *others)
    return replace(target, summary=replace(summary, tiers=tiers))


@pytest.mark.parametrize(
    ("figures", "words"),
    [({"units": 50}, "compute units at once"), ({"bytes": 10_000}, "bytes on the chip at once")],
)
def test_a_body_that_is_larger_than_the_chip_is_not_placed_on_it(
    figures: dict[str, int], words: str
) -> None:
    whole = model(100)
    (node,) = whole.graph
    assert place(whole, TARGET).on_rdu(node)
    small = _smaller(TARGET, **figures)
    reason = place(whole, small).reasons[node]
    assert (reason.code, words in reason.message) == (ReasonCode.LIMIT, True)
    assert Supporting(small).support(node).reason == reason
