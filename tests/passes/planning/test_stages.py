from __future__ import annotations

from samba_onnx.passes.planning.partitioning import Group, Home
from samba_onnx.passes.planning.stages import interfaces
from tests.passes.planning.plan_samples import parse, target


def test_a_group_whose_results_nobody_reads_has_its_last_as_output() -> None:
    model = parse("g (float[4] x) => (float[4] y) { a = Neg (x)\n b = Abs (x)\n y = Relu (x) }")
    first, second, third = model.graph
    groups = [Group(Home.RDU, (first, second)), Group(Home.RDU, (third,))]
    outputs = [
        [value.name for value in stage.outputs]
        for stage in interfaces(model.graph, groups, target())
    ]
    assert outputs == [["b"], ["y"]]
