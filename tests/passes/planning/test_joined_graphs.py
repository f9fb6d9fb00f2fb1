"""The graph that parts are joined into: its interface, names, and numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from samba_onnx.errors import InternalError
from samba_onnx.passes.planning.joining import JoinedProgram, PlacedPart, join
from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import ArginSpec, Program
from tests.passes.planning.plan_samples import parse, placement

FORWARD = """a (float[2] x, float[2] w) => (float[2] y, float[2] kept)
<float[2] c = {3, 4}>
{
    kept = Mul (x, w)
    t = Add (kept, c)
    y = Abs (t)
}"""
BACKWARD = """b (float[2] x, float[2] kept, float lr) => (float[2] w_new)
<float[2] c = {5, 6}>
{
    t = Add (kept, c)
    u = Mul (t, lr)
    w_new = Sub (u, x)
}"""


def placed(text: str, kind: SectionType = SectionType.FWD, version: int = 21) -> PlacedPart:
    model = parse(text)
    model.graph.opset_imports[""] = version
    homes = placement(model)
    return PlacedPart(kind, model, tuple(partition(model, homes)), homes)


def program(**fields: object) -> Program:
    base: dict[str, object] = {
        "name": "step",
        "parts": (),
        "inputs": ("x",),
        "outputs": ("y",),
        "residents": {"w": SymbolKind.WEIGHT, "w_new": SymbolKind.WEIGHT},
        "regions": {"w_new": "w"},
        "argins": (ArginSpec("lr", "tensor(float)", 0.5),),
    }
    return Program(**{**base, **fields})  # type: ignore[arg-type]


def joined() -> JoinedProgram:
    return join(program(), [placed(FORWARD), placed(BACKWARD, SectionType.BCKWD)], (), {"w"})


def test_mini_batches_are_those_of_the_program() -> None:
    parts = [placed(FORWARD), placed(BACKWARD, SectionType.BCKWD)]
    assert join(program(spatial_batches=3), parts).roles.spatial_batches == 3


def names(values: object) -> list[str]:
    return [value.name for value in values]  # type: ignore[attr-defined]


def test_the_graph_has_the_inputs_and_outputs_of_the_program() -> None:
    graph = joined().model.graph
    assert graph.name == "step"
    assert names(graph.inputs) == ["x", "w", "lr"]
    assert names(graph.outputs) == ["y", "w_new"]
    assert graph.opset_imports[""] == 21


def test_roles_are_those_of_the_program() -> None:
    roles = joined().roles
    assert (names(roles.inputs), names(roles.outputs)) == (["x", "lr"], ["y"])
    assert {v.name: kind for v, kind in roles.residents.items()} == program().residents
    assert names(roles.argins) == ["lr"]
    assert (roles.regions, roles.changed) == ({"w_new": "w"}, {"w"})


def test_groups_know_the_type_of_their_part() -> None:
    whole = joined()
    assert [group.type for group in whole.groups] == [SectionType.FWD, SectionType.BCKWD]
    assert {n for g in whole.groups for n in g.nodes} == set(whole.model.graph)
    assert set(whole.placement.supports) == set(whole.model.graph)


def test_what_both_parts_call_alike_has_two_names_and_the_numbers_stay() -> None:
    model = joined().model
    values = [v for node in model.graph for v in node.outputs]
    assert len({v.name for v in values}) == len(values) == 6
    assert [node.name for node in model.graph] == ["Mul", "Add", "Abs", "Add_2", "Mul_2", "Sub"]
    assert sorted(model.graph.initializers) == ["c", "c_2"]
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    x, w = np.float32([1, -2]), np.float32([2, 3])
    lr = np.array(0.5, np.float32)
    y, updated = session.run(None, {"x": x, "w": w, "lr": lr})
    assert np.array_equal(y, np.abs(x * w + [3, 4]))
    assert np.array_equal(updated, (x * w + [5, 6]) * lr - x)


def test_nodes_keep_their_names_or_get_that_of_their_operator() -> None:
    part = placed(FORWARD)
    first, second, _ = part.model.graph
    first.name, second.name = "mine", ""
    graph = join(program(argins=(), residents={"w": SymbolKind.WEIGHT}), [part]).model.graph
    assert [node.name for node in graph][:2] == ["mine", "Add"]


def test_names_of_other_programs_are_not_taken() -> None:
    whole = join(
        program(argins=(), residents={"w": SymbolKind.WEIGHT}), [placed(FORWARD)], ["t", "c"]
    )
    graph = whole.model.graph
    assert names(v for n in graph for v in n.outputs) == ["kept", "t_2", "y"]
    assert list(graph.initializers) == ["c_2"]


def test_a_value_between_parts_gets_another_name_where_another_program_has_its_own() -> None:
    whole = join(program(), [placed(FORWARD), placed(BACKWARD)], ["kept"])
    written = [v for node in whole.model.graph for v in node.outputs]
    assert [v.name for v in written if str(v.name).startswith("kept")] == ["kept_2"]
    kept = next(v for v in written if v.name == "kept_2")
    assert [node.op_type for node in kept.consumers()] == ["Add", "Add"]


def test_a_value_that_a_part_computes_for_itself_gets_no_name_of_the_program() -> None:
    second = "b (float[2] x) => (float[2] w_new) { y = Neg (x)  w_new = Abs (y) }"
    whole = program(argins=())
    graph = join(whole, [placed(FORWARD), placed(second)]).model.graph
    assert names(v for n in graph for v in n.outputs) == ["kept", "t", "y", "y_2", "w_new"]


def test_initializers_with_a_part_in_the_program_keep_their_names() -> None:
    text = "a (float[2] x) => (float[2] y, float[2] w) <float[2] w = {3, 4}> { y = Mul (x, w) }"
    whole = program(argins=(), residents={"w": SymbolKind.WEIGHT}, regions={})
    graph = join(whole, [placed(text)], ["w"]).model.graph
    assert list(graph.initializers) == ["w"]


def test_a_tensor_in_the_model_of_the_user_keeps_its_name() -> None:
    part = placed(FORWARD)
    tensor = part.model.graph.initializers["c"].const_value
    join(program(argins=(), residents={"w": SymbolKind.WEIGHT}), [part], ["c"])
    assert tensor is not None
    assert tensor.name == "c"


def test_an_output_that_is_an_input_is_the_value_of_the_part_before() -> None:
    second = "b (float[2] y) => (float[2] y, float[2] z) { z = Neg (y) }"
    whole = program(outputs=("y", "z"), argins=(), residents={"w": SymbolKind.WEIGHT})
    graph = join(whole, [placed(FORWARD), placed(second)]).model.graph
    assert names(graph.outputs) == ["y", "z"]
    assert graph.outputs[0].producer().op_type == "Abs"  # type: ignore[union-attr]
    onnx.checker.check_model(ir.to_proto(ir.Model(graph, ir_version=10)))


def test_names_in_bodies_are_not_given_to_values_outside() -> None:
    text = """a (float[2] x, bool b) => (float[2] y) {
        y = If (b) <
            then_branch = t () => (float[2] r) { inner = Neg (x)  r = Abs (inner) },
            else_branch = e () => (float[2] q) { q = Neg (x) }>
    }"""
    second = "c (float[2] x) => (float[2] z) { inner = Exp (x)  r = Neg (inner)  z = Abs (r) }"
    whole = program(inputs=("x", "b"), outputs=("y", "z"), argins=(), residents={}, regions={})
    graph = join(whole, [placed(text), placed(second)]).model.graph
    assert names(v for n in graph for v in n.outputs) == ["y", "inner_2", "r_2", "z"]


def test_two_writers_of_one_value_are_an_internal_error() -> None:
    with pytest.raises(InternalError, match="two parts write 'y'"):
        join(program(), [placed(FORWARD), placed(FORWARD)])


def test_two_versions_of_a_domain_are_an_internal_error() -> None:
    with pytest.raises(InternalError, match="two versions of ''"):
        join(program(), [placed(FORWARD), placed(BACKWARD, version=20)])


def test_an_output_that_no_part_has_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="no part has the value 'nobody'"):
        join(program(outputs=("nobody",)), [placed(FORWARD), placed(BACKWARD)])


def test_the_newest_version_of_the_format_is_that_of_the_whole() -> None:
    parts = [placed(FORWARD), placed(BACKWARD)]
    parts[0].model.ir_version, parts[1].model.ir_version = 9, 10
    assert join(program(), parts).model.ir_version == 10
