from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites import loop_steps
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.loop_steps import write_steps
from samba_onnx.passes.rewrites.unroll_loops import UnrollLoopsPass
from tests.passes.rewrites.applying import KnowsAll, check, numbers, operators, parse

CONSTANTS = "int64 none = {0}, int64 n1 = {1}, int64 n2 = {2}, int64[2] two = {2, 2}, bool no = {0}"
BODY = """b (int64 i, bool go, float[2] s) => (bool on, float[2] t, float[2] r) {
    on = Identity(go)
    h = Neg(s)
    t = Where(go, h, s)
    r = Add(t, s)
}"""
STOPS = BODY.replace("Identity", "Not")
FEEDS = "float[2] x, int64 count, bool test"


def _loop(operands: str, body: str = BODY, results: str = "last, all") -> ir.Model:
    outputs = ", ".join(
        f"float[{'k,' if name == 'all' else ''}2] {name}" for name in results.split(", ")
    )
    model = parse(f"""g ({FEEDS}) => ({outputs}) <{CONSTANTS}> {{
  {results} = Loop ({operands}) <body = {body}>
}}""")
    LiftConstantsPass()(model)
    return model


def _draft(model: ir.Model) -> Draft:
    return Draft(next(node for node in model.graph if node.op_type in ("Loop", "Scan")))


@pytest.mark.parametrize(
    ("operands", "body", "reason"),
    [
        ("count, , x", BODY, "its number of steps 'count' is not constant"),
        ("two, , x", BODY, "its number of steps has 2 elements"),
        ("n2, test, x", BODY, "its condition 'test' is not constant"),
        ("n2, , x", STOPS, "its body computes whether it goes on"),
        ("none, , x", BODY, "it makes no step, and returns tensors without elements"),
        ("n2, no, x", BODY, "it makes no step, and returns tensors without elements"),
    ],
)
def test_loops_that_are_no_steps(operands: str, body: str, reason: str) -> None:
    with pytest.raises(CannotExpandError, match=f"^{reason}$"):
        write_steps(_draft(_loop(operands, body)))


def test_a_body_with_initializers_is_no_steps() -> None:
    draft = _draft(_loop("n2, , x"))
    body = draft.node.attributes["body"].as_graph()
    body.initializers.add(ir.Value(name="c", const_value=ir.tensor([1.0, 2.0])))
    with pytest.raises(CannotExpandError, match=r"^its body has initializers of its own$"):
        write_steps(draft)


@pytest.mark.parametrize(
    ("operands", "body", "steps"), [("n1, , x", STOPS, 1), ("n2, , x", BODY, 2)]
)
def test_the_condition_of_the_last_step_stops_nothing(operands: str, body: str, steps: int) -> None:
    model = _loop(operands, body)
    inputs = [numbers(2), np.array(0), np.array(False)]
    check(model, UnrollLoopsPass(KnowsAll()), inputs=inputs)
    assert operators(model).count("Add") == steps


def test_a_loop_without_steps_returns_its_states() -> None:
    body = BODY.replace(", float[2] r", "").replace("r = Add(t, s)", "")
    model = _loop("none, , x", body, results="last")
    check(model, UnrollLoopsPass(KnowsAll()), inputs=[numbers(2), np.array(0), np.array(False)])
    assert operators(model) == ["Identity"]


def test_steps_are_as_many_as_nodes_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_steps, "MOST_NODES", 10)  # 2 steps of 4 nodes, and one more for each
    assert write_steps(_draft(_loop("n2, , x")))
    monkeypatch.setattr(loop_steps, "MOST_NODES", 9)
    with pytest.raises(CannotExpandError, match=r"^its 2 steps have more than 9 nodes$"):
        write_steps(_draft(_loop("n2, , x")))


def test_names_say_which_step_a_node_belongs_to() -> None:
    draft = _draft(_loop("n2, , x"))
    outputs = write_steps(draft)
    names = [new.outputs[0].name for new in draft.nodes if new.op_type in ("Where", "Add")]
    assert names == ["t_0", "r_0", "t_1", "r_1"]
    assert [output is not None and output.dtype for output in outputs] == [ir.DataType.FLOAT] * 2


SCAN = """b (float[2] s, float[2] p, float[2] q) => (float[2] t, float[2] r) {
    m = Mul(s, p)
    t = Add(m, q)
    r = Tanh(t)
}"""


def _scan(options: str, arguments: str, operands: str, body: str = SCAN) -> ir.Model:
    return parse(f"""g ({arguments}) => (float[2] last, float[?,?] all) {{
  last, all = Scan <{options}, body = {body}> ({operands})
}}""")


@pytest.mark.parametrize("length", [1, 3])
def test_a_scan_reads_each_input_along_its_axis(length: int) -> None:
    arguments = f"float[2] s, float[2,{length}] x, float[{length},2] z"
    model = _scan("num_scan_inputs = 2, scan_input_axes = [1, 0]", arguments, "s, x, z")
    inputs = [numbers(2), numbers(2, length, seed=1), numbers(length, 2, seed=2)]
    draft = _draft(model)
    write_steps(draft)
    pieces = [new.outputs[0].dtype for new in draft.nodes if new.op_type == "Gather"]
    assert pieces == [ir.DataType.FLOAT] * 2 * length
    draft.discard()
    check(model, UnrollLoopsPass(KnowsAll()), inputs=inputs)
    assert operators(model).count("Tanh") == length


def test_a_scan_has_more_states_than_inputs() -> None:
    body = SCAN.replace("=> (", "=> (float[2] u, ").replace(
        "r = Tanh(t)", "u = Neg(m)\n r = Tanh(t)"
    )
    model = parse(f"""g (float[2] s, float[2] p, float[3,2] z)
 => (float[2] one, float[2] other, float[?,?] all) {{
  one, other, all = Scan <num_scan_inputs = 1, body = {body}> (s, p, z)
}}""")
    check(model, UnrollLoopsPass(KnowsAll()), inputs=[numbers(2), numbers(2), numbers(3, 2)])
    assert operators(model).count("Tanh") == 3


OLD = "it is one of operator set 8, which has batches of its own"


@pytest.mark.parametrize(
    ("options", "arguments", "operands", "reason"),
    [
        ("num_scan_inputs = 2", "float[2] s, float[3,2] x", "s, x", OLD),
        ("num_scan_inputs = 0", "float[2] s, float[3,2] x", "s, x, x", OLD),
        ("num_scan_inputs = 4", "float[2] s, float[3,2] x", "s, x, x", OLD),
        (
            "num_scan_inputs = 2",
            "float[2] s, float[3,2] x, float[4,2] z",
            "s, x, z",
            "its inputs have several lengths",
        ),
        (
            "num_scan_inputs = 2",
            "float[2] s, float[0,2] x",
            "s, x, x",
            "it makes no step, and returns tensors without elements",
        ),
    ],
)
def test_scans_that_are_no_steps(options: str, arguments: str, operands: str, reason: Any) -> None:
    with pytest.raises(CannotExpandError, match=f"^{reason}$"):
        write_steps(_draft(_scan(options, arguments, operands)))
