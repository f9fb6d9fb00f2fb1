from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import samba_onnx
from samba_onnx.errors import InvalidModelError
from samba_onnx.passes.rewrites.bind_dimensions import ASSUMED
from samba_onnx.passes.rewrites.impossible_shapes import OperandShapes
from samba_onnx.passes.rewrites.refuse_impossible import RefuseImpossiblePass, impossible
from samba_onnx.program.source_location import STACK_TRACE, source_location
from tests.passes.rewrites.applying import parse

FLATTENED = """g (float[batch,3,height,width] x, float[6,3,3,3] k, float[384,5] w) => (float[batch,5] y) {
    c = Conv<kernel_shape=[3,3]>(x, k)
    f = Flatten(c)
    y = Gemm(f, w)
}"""


def test_a_size_that_was_assumed_is_named_with_the_way_to_state_it(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{FLATTENED}')
    with pytest.raises(InvalidModelError, match=r"the node that makes 'c' \(Conv\)") as caught:
        samba_onnx.convert(model, tmp_path / "m.pef")
    assert "batch, height, width are taken as 1" in str(caught.value)
    assert "--dim NAME=SIZE" in str(caught.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidModelError, match=r"multiplies \[1, 54\] by \[384, 5\]") as caught:
        samba_onnx.analyze(model, dims={"height": 5, "width": 5})
    assert "batch is taken as 1" in str(caught.value)
    assert not samba_onnx.analyze(model, dims={"height": 10, "width": 10}).fallbacks
    assert samba_onnx.analyze(model, keep_dynamic=True).fallbacks


def test_what_a_model_states_of_inner_values_is_not_believed() -> None:
    # Wrong by the model's own words: the sum is [2,3].
    text = "g (float[2,3] x) => (float[2,3] y) <float[7] a> { a = Relu(x) y = Add(a, x) }"
    assert not RefuseImpossiblePass()(parse(text)).modified


def test_a_branch_that_may_never_be_taken_is_not_looked_at() -> None:
    RefuseImpossiblePass()(
        parse(
            """g (float[2,3] x, float[2] z, bool c) => (float[2,3] y) {
                y = If (c) <
                    then_branch = t () => (float[2,3] a) { a = Add(x, z) },
                    else_branch = e () => (float[2,3] b) { b = Relu(x) }>
            }"""
        )
    )


def test_the_first_of_several_is_named() -> None:
    text = """g (float[2,3] x, float[2] z) => (float[2,3] y) <int64[1] s={7}> {
        a = Relu(x)
        b = Reshape(a, s)
        y = Add(a, z)
    }"""
    with pytest.raises(Exception, match="makes 'b'") as caught:
        RefuseImpossiblePass()(parse(text))
    assert isinstance(caught.value.__cause__ or caught.value, InvalidModelError)


def test_nodes_of_other_domains_are_taken_as_they_are() -> None:
    model = parse("g (float[2,3] x) => (float[5] y) { a = foreign.Op(x) y = Relu(a) }")
    assert not RefuseImpossiblePass()(model).modified


def _refused(text: str) -> str:
    with pytest.raises(InvalidModelError) as caught:
        RefuseImpossiblePass()(parse(text))
    return str(caught.value)


def test_the_message_names_the_node_its_inputs_and_what_onnx_says() -> None:
    """No rule of ours knows Det: this is onnx's own reason, in the words of ours."""
    text = "g (float[2,3] x, float[n] u) => (float y) { a = Relu(u) y = Det(x) }"
    assert _refused(text) == (
        "the node that makes 'y' (Det at model.py:2) cannot be computed: the inner-most 2 dimensions must "
        "have the same size (mat_w:3 != mat_h:2); its inputs are x tensor(float)[2, 3]: correct the model"
    )


def test_operands_that_are_left_out_or_of_unknown_sizes_are_told_too() -> None:
    text = "g (float[2,3,4] x, float[4,3] w, float[n,3] r) => (float y) { y = RNN<hidden_size = 3>(x, w, r) }"
    assert "w tensor(float)[4, 3], r tensor(float)[?, 3]: correct" in _refused(text)
    model = parse(text)
    model.graph.inputs[2].shape = None
    with pytest.raises(
        InvalidModelError, match=r"w tensor\(float\)\[4, 3\], r tensor\(float\): correct"
    ):
        RefuseImpossiblePass()(model)
    text = "g (float[2,3] x) => (float y) <int64[3] s = {1, 2, 3}> { y = Resize(x, , , s) }"
    assert "x tensor(float)[2, 3], none, none, s tensor(int64)[3]" in _refused(text)


def test_a_node_is_called_by_its_name() -> None:
    model = parse("g (float[2,3] x, float[2,4] w) => (float[2,4] y) { y = MatMul(x, w) }")
    model.graph[0].name = "head"
    with pytest.raises(InvalidModelError, match=r"^node 'head' \(MatMul"):
        RefuseImpossiblePass()(model)


def test_sizes_that_the_model_computes_are_known() -> None:
    text = """g (float[2,6] x, float[5,3] w) => (float[3,3] y) <int64[1] three={3}, int64[1] four={4}> {
        s = Concat<axis=0>(three, four)
        r = Reshape(x, s)
        y = MatMul(r, w)
    }"""
    # the reason is onnx's, which has computed the sizes, and so has the list of inputs
    with pytest.raises(InvalidModelError, match=r"incompatible dimensions .* r \[3, 4\]"):
        RefuseImpossiblePass()(parse(text))


def test_an_operator_of_a_domain_of_its_own_may_have_any_shapes_and_no_results() -> None:
    model = parse(
        "g (float[2,3] x, float[7] z) => (float[2,3] y) { y = mine.Add(x, z) }",
        imports=', "mine": 1',
    )
    model.graph.append(ir.Node("mine", "Log", [model.graph.inputs[0]], num_outputs=0))
    RefuseImpossiblePass()(model)


def test_a_refusal_names_the_line_the_operands_and_what_was_assumed() -> None:
    model = parse("g (float[3,2] x, int64[n] i) => (y) { y = Gather(x, i) }")
    (node,) = model.graph
    node.metadata_props[STACK_TRACE] = 'File "net.py", line 3, in forward\n    y = x[i]'
    place = source_location(node)
    assert place
    shapes = OperandShapes(node, ((3, 2), (None,)), None)
    first = (
        f"the node that makes 'y' (Gather at {place}) cannot be computed: it is so; its inputs are "
        "x tensor(float)[3, 2], i tensor(int64)[?]: correct the model"
    )
    assert str(impossible(model, shapes, "it is so")) == first
    for sizes, text in (
        (dict.fromkeys("abcd", 7), "a, b, c, d are taken as 7"),
        (dict.fromkeys("abcde", 7), "a, b, c, d are taken as 7, ..."),
        ({"n": 7}, "n is taken as 7"),
        ({"n": 7, "t": 128, "m": 7}, "n, m are taken as 7, t as 128"),
    ):
        model.meta[ASSUMED] = sizes
        assert str(impossible(model, shapes, "it is so")) == (
            f"{first}; or state the sizes of its dynamic dimensions, of which {text}: --dim "
            "NAME=SIZE, --input-shape INPUT=SIZES or --sample-input INPUT=FILE, or --keep-dynamic"
        )


def test_nodes_of_their_own_versions_are_left_to_others() -> None:
    model = parse("g (float[2,3] x, float[4,2] w) => (float[2,2] y) { y = MatMul(x, w) }")
    model.graph[0].version = 13
    assert not RefuseImpossiblePass()(model).modified


# As exporters write the padding of a signal: its amounts are computed, by steps that no inference follows.
PADDED = """<ir_version: 8, opset_import: ["" : 15]>
    padded (float[batch, sequence] x, float[4, 1, 9] w) => (float y)
    <int64[2, 2] pairs = {0, 0, 0, 2}> {
        columns = Transpose <perm = [1, 0]> (pairs)
        size = Constant <value_ints = [-1]> ()
        pads = Reshape(columns, size)
        p = Pad(x, pads)
        axis = Constant <value_ints = [1]> ()
        u = Unsqueeze(p, axis)
        y = Conv(u, w)
    }"""


@pytest.mark.parametrize(("size", "fits"), [(6, False), (7, True)])
def test_sizes_that_follow_when_constants_are_folded_are_looked_at(size: int, fits: bool) -> None:
    model = onnx.parser.parse_model(PADDED)
    dims = {"sequence": size}
    if fits:
        assert samba_onnx.analyze(model, dims=dims).sections
        return
    with pytest.raises(InvalidModelError, match=r"reaches over 9 elements of an input of 8"):
        samba_onnx.analyze(model, dims=dims)


def test_a_model_whose_sizes_are_its_own_is_left_to_those_who_run_it() -> None:
    text = """<ir_version: 8, opset_import: ["" : 15]>
        g (float[1, 1, 6] x, float[4, 1, 9] w) => (float y) { y = Conv(x, w) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    folded = RefuseImpossiblePass(folded=True)
    assert not folded(model).modified
    model.meta[ASSUMED] = {"x[2]": 6}
    with pytest.raises(InvalidModelError, match="reaches over 9 elements of an input of 6"):
        folded(model)
