"""Nodes of one operator of torch are together at ``o0``, and an expression of one line is."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.planning.origins import by_operator
from samba_onnx.program.scopes import OPERATOR_KEY, OWN_SCOPE_KEY
from samba_onnx.program.source_location import STACK_TRACE


def node(op_type: str, line: str, operator: str = "", module: str = "m") -> ir.Node:
    made = ir.node(op_type, [ir.Value(name="x")])
    made.metadata_props.update({OWN_SCOPE_KEY: module, STACK_TRACE: line, OPERATOR_KEY: operator})
    return made


def grouped(*nodes: ir.Node) -> list[list[str]]:
    return [[one.op_type for one in run] for run in by_operator(nodes)]


def test_an_expression_of_one_line_is_together_and_other_operators_are_alone() -> None:
    scaled = [node("Mul", "line 1"), node("Add", "line 1")]
    softmax = [node(op, "line 1", "softmax") for op in ("Exp", "ReduceSum", "Div")]
    dropout = [node("Where", "line 1", "dropout"), node("Mul", "line 1", "dropout")]
    assert grouped(*scaled, *softmax, *dropout, node("Mul", "line 2"), node("Mul", "line 3")) == [
        ["Mul", "Add"],
        ["Exp", "ReduceSum", "Div"],
        ["Where", "Mul"],
        ["Mul"],
        ["Mul"],
    ]


def test_products_are_alone_and_other_names_of_elements_stay_in_their_line() -> None:
    assert grouped(
        node("Add", "line 1"),
        node("Reshape", "line 1", "view"),
        node("MatMul", "line 1", "matmul"),
        node("Transpose", "line 1", "transpose"),
        node("Mul", "line 1", module="m__mul_bwd"),
    ) == [["Add", "Reshape"], ["MatMul"], ["Transpose", "Mul"]]
    assert grouped(ir.node("Relu", []), ir.node("Relu", [])) == [["Relu"], ["Relu"]]


def test_what_widens_operands_is_a_part_of_the_product_that_alone_reads_it() -> None:
    """Scores of an attention in bfloat16, a Cast that something else reads, too, and one for no product."""
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (bfloat16[2,8] q, bfloat16[4,8] k, bfloat16[4,4] b) => (float[2,4] s, float[4,4] y, float[4,4] z) {
            wq = Cast<to=1>(q)
            t = Transpose<perm=[1,0]>(k)
            wk = Cast<to=1>(t)
            p = MatMul(wq, wk)
            s = Softmax(p)
            wb = Cast<to=1>(b)
            m = MatMul(p, wb)
            y = Add(wb, wb)
            wa = Cast<to=1>(b)
            z = Abs(wa)
        }"""
    )
    nodes = list(model.graph)
    for each in nodes:
        for value in each.outputs:
            value.type = ir.TensorType(
                ir.DataType.BFLOAT16 if value.name == "t" else ir.DataType.FLOAT
            )
        each.metadata_props.update(
            {OWN_SCOPE_KEY: "m", STACK_TRACE: "line", OPERATOR_KEY: "attend"}
        )
    names = [[one.op_type for one in run] for run in by_operator(nodes)]
    assert names == [
        ["Transpose"],
        ["Cast", "Cast", "MatMul"],
        ["Softmax", "Cast"],
        ["MatMul"],
        ["Add", "Cast", "Abs"],
    ]


def test_products_of_one_operator_are_alone_too() -> None:
    pair = [node("MatMul", "line 1", "einsum"), node("MatMul", "line 1", "einsum")]
    assert grouped(*pair) == [["MatMul"], ["MatMul"]]


def test_a_gradient_belongs_to_the_innermost_module_and_no_operator_is_the_empty_one() -> None:
    inner = node("Add", "line 1", module="m__k")
    del inner.metadata_props[OPERATOR_KEY]
    backward = node("Mul", "line 1", module="m__k__mul_bwd")
    assert grouped(inner, node("Transpose", "line 1", "t", module="m__k"), backward) == [
        ["Add", "Transpose", "Mul"]
    ]


MASKED = """<ir_version: 10, opset_import: ["" : 20, "samba" : 1]>
    g (float rate, int32 seed, float[2,8] d) => (float[2,8] y{more}) <float one = {1.0}, float zero = {0.0}> {
        keeps = Sub(one, rate)
        m = samba.DropoutMask(rate, seed)
        scale = Where(m, keeps, zero)
        a = Abs(d)
        y = Mul(a, scale)
        {rest}
    }"""


def masked(rest: str = "", more: str = "") -> list[list[str]]:
    """Return the sections of a gradient of a dropout whose mask is drawn again."""
    model = ir.from_onnx_text(MASKED.replace("{rest}", rest).replace("{more}", more))
    for one in model.graph:
        line = {"Abs": "line 1", "Mul": "line 3", "Neg": "line 4"}.get(one.op_type, "line 2")
        one.metadata_props.update({OWN_SCOPE_KEY: "m", STACK_TRACE: line, OPERATOR_KEY: ""})
    return [[one.op_type for one in run] for run in by_operator(list(model.graph))]


def test_a_mask_is_drawn_where_it_is_read() -> None:
    drawn = ["Sub", "DropoutMask", "Where"]
    assert masked() == [["Abs"], [*drawn, "Mul"]]
    assert masked("z = Neg(scale)", ", float[2,8] z") == [drawn, ["Abs"], ["Mul"], ["Neg"]]
    assert masked("", ", float[2,8] scale") == [drawn, ["Abs"], ["Mul"]]


def drawn(body: str, rate: str = "float", lines: str = "") -> list[list[str]]:
    """Return the sections of a graph whose values have 2 x 8 elements, each node with a line of its own.

    Args:
        body: The nodes.
        rate: Type of the rate of dropout.
        lines: A digit per node: those of one digit stand in one line; its number where empty.
    """
    model = ir.from_onnx_text(
        f"""<ir_version: 10, opset_import: ["" : 20, "samba" : 1]>
        g ({rate} rate, int32 seed, float[2,8] d) => (float[2,8] y) <float zero = {{0.0}}> {{ {body} }}"""
    )
    for place, one in enumerate(model.graph):
        line = lines[place] if lines else str(place)
        one.metadata_props.update({OWN_SCOPE_KEY: "m", STACK_TRACE: line, OPERATOR_KEY: ""})
        one.outputs[0].shape = ir.Shape([2, 8])
    return [[one.op_type for one in run] for run in by_operator(list(model.graph))]


@pytest.mark.parametrize("rate", ["float", "float[1]"])
def test_a_mask_is_of_numbers_and_of_what_is_drawn_from_them(rate: str) -> None:
    draws = "m = samba.DropoutMask(rate, seed) s = Where(m, rate, zero) a = Abs(d) y = Mul(a, s)"
    assert drawn(draws, rate, "1123") == [["Abs"], ["DropoutMask", "Where", "Mul"]]
    reads = draws.replace("Where(m, rate, zero)", "Where(m, d, zero)")
    assert drawn(reads, rate, "1123") == [["DropoutMask", "Where"], ["Abs"], ["Mul"]]


def test_a_mask_that_is_a_line_by_itself_and_two_that_one_operator_reads() -> None:
    alone = "m = samba.DropoutMask(rate, seed) a = Abs(d) y = Where(m, a, zero)"
    assert drawn(alone) == [["Abs"], ["DropoutMask", "Where"]]
    two = (
        "m = samba.DropoutMask(rate, seed) n = samba.DropoutMask(rate, seed) a = Abs(d) "
        "b = Where(m, a, zero) y = Where(n, b, zero)"
    )
    assert drawn(two, lines="12344") == [["Abs"], ["DropoutMask", "DropoutMask", "Where", "Where"]]


@pytest.mark.parametrize(
    ("rest", "last"),
    [
        ("w = Cast<to=1>(d) y = MatMul(scale, w)", ["Cast", "MatMul"]),
        ("y = samba.AllReduce(scale)", ["AllReduce"]),
    ],
)
def test_what_stands_alone_draws_no_mask(rest: str, last: list[str]) -> None:
    """A product keeps what widens its operands, and an exchange between RDUs is a section of its own."""
    model = ir.from_onnx_text(
        f"""<ir_version: 10, opset_import: ["" : 20, "samba" : 1]>
        g (float rate, int32 seed, bfloat16[2,8] d) => (float[8,8] y) <float zero = {{0.0}}> {{
            m = samba.DropoutMask(rate, seed)
            scale = Where(m, rate, zero)
            {rest}
        }}"""
    )
    for each in model.graph:
        each.metadata_props.update({OWN_SCOPE_KEY: "m", STACK_TRACE: "line", OPERATOR_KEY: ""})
        each.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    runs = [[one.op_type for one in run] for run in by_operator(list(model.graph))]
    assert runs == [["DropoutMask", "Where"], last]
