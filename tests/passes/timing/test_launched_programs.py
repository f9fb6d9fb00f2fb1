"""Sections of a schedule, with the times that they have beside each other."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
import pytest

from samba_onnx.facts.domains import ALL_GATHER, ALL_REDUCE, SAMBA_DOMAIN
from samba_onnx.passes.sharding.collectives import collective
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.launches import SectionDraft, exchanged, in_programs
from samba_onnx.passes.timing.node_work import value_bytes
from samba_onnx.passes.timing.section_terms import section_terms
from samba_onnx.passes.timing.traffic import by_tier
from samba_onnx.pef.manifest import Section
from samba_onnx.pef.stage_records import Streaming
from samba_onnx.pef.target_summary import TargetSummary

TARGET = load_target("sn40l").summary


def typed(value: ir.Value, *shape: int) -> ir.Value:
    value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(shape)
    return value


def drafts(exchange: ir.Node, *, renamed: bool = False) -> list[SectionDraft]:
    """Return a Relu, the exchange of its result, a Reshape of that if so asked, and another Relu."""
    (source,) = exchange.inputs
    assert source is not None
    first = ir.node("Relu", [typed(ir.Value(name="x"), *source.shape)], outputs=[source])
    groups, brought = [[first], [exchange]], exchange.outputs[0]
    shape = brought.shape
    if renamed:
        groups.append([ir.node("Reshape", [brought, ir.Value(name="s")])])
        brought = typed(groups[-1][0].outputs[0], *shape)
    groups.append([ir.node("Relu", [brought])])
    typed(groups[-1][0].outputs[0], *shape)
    result = []
    for place, nodes in enumerate(groups):
        values = [v for node in nodes for v in (*node.inputs, *node.outputs) if v is not None]
        traffic = {value: ("hbm", value_bytes(value) or 0) for value in values}
        time = section_terms(nodes, by_tier(traffic), TARGET).time(TARGET)
        record = Section(
            place, "", "", "", (), (), (), {},
            seconds=time.seconds, time=time, collective=collective(nodes, TARGET),
        )  # fmt: skip
        result.append(SectionDraft(place, record, nodes, traffic))
    return result


def reduced() -> ir.Node:
    node = ir.node(
        ALL_REDUCE, [typed(ir.Value(name="a"), 96, 64)], {"rdus": 2}, domain=SAMBA_DOMAIN
    )
    typed(node.outputs[0], 96, 64)
    return node


def gathered(rows: int, columns: int) -> ir.Node:
    shard = typed(ir.Value(name="a"), rows, columns)
    node = ir.node(ALL_GATHER, [shard], {"rdus": 2}, domain=SAMBA_DOMAIN)
    typed(node.outputs[0], 96, 64)
    return node


def streaming(exchange: ir.Node, target: TargetSummary = TARGET) -> Streaming | None:
    return in_programs(drafts(exchange), 3, target)[-1].streaming


@pytest.mark.parametrize("exchange", [reduced(), gathered(96, 32)], ids=["summed", "gathered"])
def test_what_stands_behind_an_exchange_of_its_program_streams(exchange: ir.Node) -> None:
    sections = in_programs(drafts(exchange), 3, TARGET)
    behind = sections[-1]
    assert behind.time is not None
    assert [bool(s.time and s.time.launch) for s in sections] == [True, False, False]
    assert behind.streaming == Streaming(behind.time.overlapped, 3)
    assert [section.streaming for section in sections[:-1]] == [None, None]


def test_another_program_is_loaded_when_the_exchange_has_ended() -> None:
    assert TARGET.timing is not None
    units = TARGET.timing.operator_units
    small = replace(TARGET, timing=replace(TARGET.timing, compute_units=2 * units - 1))
    assert streaming(reduced(), small) is None
    assert streaming(reduced()) is not None


def test_rows_that_others_have_do_not_arrive_in_their_order() -> None:
    assert streaming(gathered(48, 64)) is None


def test_what_reads_other_names_of_what_was_brought_waits_for_it() -> None:
    sections = in_programs(drafts(reduced(), renamed=True), 4, TARGET)
    assert [section.streaming for section in sections] == 4 * [None]


def test_two_exchanges_before_a_section_bring_rows_of_both() -> None:
    before, first, behind = drafts(reduced())
    second = replace(drafts(reduced())[1], place=2)
    order = [before, first, second, replace(behind, place=3)]
    brought = tuple(draft.nodes[0].outputs[0] for draft in (first, second))
    assert exchanged(order, [[0, 1, 2, 3]]) == {3: brought}
