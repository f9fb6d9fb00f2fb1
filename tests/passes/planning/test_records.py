"""Records of stages say what the groups that they are made of are."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
import pytest

from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.passes.planning.plan import GraphPlan, plan
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.source_location import STACK_TRACE
from tests.passes.planning.plan_samples import named, parse, placement, target


def sample() -> ir.Model:
    model = named(parse("g (float[4] x) => (float[4] y) { a = Relu (x)  y = Cos (a) }"))
    model.graph[0].outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    model.graph[0].outputs[0].shape = ir.Shape([4])
    return model


def planned(model: ir.Model, kind: SectionType = SectionType.FWD) -> GraphPlan:
    homes = placement(model)
    groups = [replace(group, type=kind) for group in partition(model, homes)]
    return plan(model, groups, target(), graph_name="g", weight_names=(), placement=homes)


@pytest.mark.parametrize("kind", SectionType)
def test_stages_on_both_sides_have_the_type_of_their_part(kind: SectionType) -> None:
    found = planned(sample(), kind)
    assert [stage.type for stage in (*found.sections, *found.fallbacks)] == [kind, kind]
    assert [s.member for s in found.sections] == [f"stages/000_{kind.value}.onnx"]
    assert [s.member for s in found.fallbacks] == ["stages/001_cpu.onnx"]


def test_a_node_on_the_cpu_is_told_with_the_users_line() -> None:
    model = sample()
    model.graph[1].metadata_props[STACK_TRACE] = 'File "model.py", line 7, in forward'
    (fallback,) = planned(model).fallbacks
    assert [reason.location for reason in fallback.reasons] == ["model.py:7"]
