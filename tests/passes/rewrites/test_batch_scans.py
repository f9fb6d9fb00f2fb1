from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.batch_scans import BatchScansPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from tests.passes.rewrites.applying import check, numbers, operators, parse

POINTS, OTHERS = numbers(5, 3), numbers(4, 3, seed=1)


def batched(
    body: str, *, options: str = "", shape: str = "4,5", modified: bool = True
) -> list[str]:
    """Batch a Scan over four points that carries five others; return the operators that are left."""
    model = parse(f"""g (float[5,3] a, float[4,3] b) => (float[5,3] last, float[{shape}] y)
<int64[1] one = {{1}}, int64[1] front = {{0}}, int64[1] back = {{-1}}> {{
  last, y = Scan <num_scan_inputs = 1, {options} body = {body}> (a, b)
}}""")
    InferShapesPass()(model)
    check(model, BatchScansPass(), inputs=[POINTS, OTHERS], modified=modified)
    return operators(model)


def step(text: str, rank: int = 1, carried: str = "t = Identity(s)") -> str:
    sizes = ",".join("nmk"[:rank])
    return (
        f"c (float[5,3] s, float[3] e) => (float[5,3] t, float[{sizes}] r) {{ {carried}\n {text} }}"
    )


@pytest.mark.parametrize("axis", ["one", "back"])
def test_distances_of_all_pairs_are_computed_at_once(axis: str) -> None:
    """As skl2onnx writes them."""
    left = batched(step(f"d = Sub(s, e)\n r = ReduceSumSquare<keepdims = 0>(d, {axis})"))
    assert sorted(set(left) - {"Identity"}) == ["ReduceSumSquare", "Sub", "Unsqueeze"]
    assert len(left) <= 5


def test_axes_that_are_kept_are_kept() -> None:
    body = step("d = Sub(s, e)\n r = ReduceMax(d, front)", rank=2)
    assert "ReduceMax" in batched(body, shape="4,1,3")


def test_what_does_not_change_from_step_to_step_is_computed_once() -> None:
    body = step("n = Neg(s)\n f = ReduceMean<keepdims = 0>(n, one)\n m = ReduceSum<keepdims = 0>(e, front)\n r = Add(m, f)")  # fmt: skip
    assert "Scan" not in batched(body)


def test_values_of_fewer_dimensions_are_aligned_behind_the_step() -> None:
    # Of one dimension and of two, both different in every step.
    body = step(
        "d = Mul(s, e)\n q = Sqrt(d)\n p = Neg(e)\n c = Where(i, q, p)\n r = Pow(c, e)", rank=2
    )
    body = body.replace("c = Where(i, q, p)", "i = Less(d, p)\n q2 = Abs(d)\n c = Where(i, q2, p)")
    body = body.replace("q = Sqrt(d)\n", "").replace("Pow(c, e)", "Mul(c, e)")
    assert "Scan" not in batched(body, shape="4,5,3")


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (step("r = ReduceSum<keepdims = 0>(s, one)"), ""),  # the same in every step
        (step("r = ReduceSum<keepdims = 0>(s, one)", carried="t = Add(s, e)"), ""),
        (step("d = Sub(s, e)\n r = ReduceSum<keepdims = 0>(d, one)"), "scan_input_directions = [1],"),
        (step("d = Sub(s, e)\n h = Softmax(d)\n r = ReduceSum<keepdims = 0>(h, one)"), ""),
    ],
)  # fmt: skip
def test_other_scans_stay(body: str, options: str) -> None:
    assert batched(body, options=options, modified=False) == ["Scan"]


def test_along_another_axis_it_stays() -> None:
    body = step("d = Sub(s, e)\n r = ReduceSum<keepdims = 0>(d, one)")
    left = batched(body, options="scan_output_axes = [1],", shape="5,4", modified=False)
    assert left == ["Scan"]


SUMS = step("d = Sub(s, e)\n r = ReduceSum<keepdims = 0>(d, one)")


@pytest.mark.parametrize(
    "option",
    ["scan_input_axes = [1]", "scan_output_axes = [1]", "scan_output_directions = [1]",
     "scan_input_directions = [1]"],
)  # fmt: skip
def test_another_order_stays(option: str) -> None:
    model = parse(f"""g (float[5,3] a, float[3,3] b) => (float[5,3] last, float[?,?] y)
<int64[1] one = {{1}}> {{ last, y = Scan <num_scan_inputs = 1, {option}, body = {SUMS}> (a, b) }}""")
    rewrite = BatchScansPass()
    assert not rewrite(model).modified
    assert "backwards, or along another axis" in rewrite.refusals.lines()[0]


def test_a_body_with_initializers_stays_and_does_not_hide_that_another_scan_went() -> None:
    scan = f"Scan <num_scan_inputs = 1, body = {SUMS}> (a, b)"
    model = parse(f"""g (float[5,3] a, float[4,3] b) => (float[4,5] y, float[4,5] z)
<int64[1] one = {{1}}> {{ l, y = {scan}\n m, z = {scan} }}""")
    body = model.graph.node(1).attributes["body"].as_graph()
    body.initializers.add(ir.Value(name="c", const_value=ir.tensor([1.0])))
    rewrite = BatchScansPass()
    assert rewrite(model).modified
    assert operators(model).count("Scan") == 1
    assert "its body has initializers" in rewrite.refusals.lines()[0]


@pytest.mark.parametrize(
    "text",
    [
        "d = Sub(s, e)\n h = Identity(e)\n r = Mul(d, h)",
        "d = Sub(s, e)\n h = Identity(d)\n r = Mul(h, e)",
        "d = Sub(s, e)\n k = ReduceSum(e, front)\n r = Add(d, k)",
        "d = Sub(s, e)\n k = ReduceMax(d, front)\n r = Mul(d, k)",
        "d = Sub(s, e)\n k = ReduceSum<keepdims = 0>(d, front)\n r = Add(d, k)",
        "d = Sub(s, e)\n h = Identity(s)\n k = ReduceSum<keepdims = 0>(h, front)\n r = Add(d, k)",
    ],
)
def test_a_value_has_the_rank_of_what_it_is_a_copy_or_a_reduction_of(text: str) -> None:
    assert "Scan" not in batched(step(text, rank=2), shape="4,5,3")


def test_a_reduction_over_all_axes_stays() -> None:
    assert batched(
        step("d = Sub(s, e)\n r = ReduceSum(d)", rank=2), shape="4,1,1", modified=False
    ) == ["Scan"]
