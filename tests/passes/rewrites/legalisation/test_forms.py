"""Legal forms are looked for once, of nodes that are alike in all that a form depends on."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.legalisation.forms import FormFinder, LegalForm
from samba_onnx.passes.rewrites.legalisation.legalise import put
from samba_onnx.passes.rewrites.refusals import Refusal
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from samba_onnx.passes.targets import load_target
from tests.passes.rewrites.applying import add_weights, parse

TARGET = load_target("sn40l")


def padded(left: np.ndarray, right: np.ndarray) -> list[ir.Node]:
    """Return two nodes that pad a constant each by its own reflection."""
    sizes = ",".join(map(str, left.shape))
    model = parse(
        f"""g (float[{sizes}] a, float[{sizes}] b) => (float[?,?] y, float[?,?] z)
        <int64[4] p = {{0, 1, 0, 1}}>
        {{ y = Pad<mode="reflect">(a, p) z = Pad<mode="reflect">(b, p) }}"""
    )
    add_weights(model, {"a": left, "b": right})
    for node in model.graph:
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        node.outputs[0].shape = ir.Shape([left.shape[0], left.shape[1] + 2])
    return list(model.graph)


def test_a_rule_that_is_excluded_writes_nothing() -> None:
    node, _ = padded(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))
    assert isinstance(FormFinder(TARGET, frozenset()).find(node), LegalForm)
    found = FormFinder(TARGET, frozenset({"pad"})).find(node)
    assert isinstance(found, Refusal)
    assert found.reason == "no rule writes it with other operators"


@pytest.mark.parametrize("columns", [3, 5000])
def test_constants_of_other_content_have_other_forms(columns: int) -> None:
    """Small ones are compared by content, large ones are the same only where they are one tensor."""
    ones, twos = (np.full((2, columns), number, np.float32) for number in (1, 2))
    finder = FormFinder(TARGET, frozenset())
    left, right = map(finder.find, padded(ones, twos))
    assert isinstance(left, LegalForm)
    assert left is not right
    again = FormFinder(TARGET, frozenset())
    same, alike = map(again.find, padded(ones, ones.copy()))
    assert (same is alike) is (columns == 3)


@pytest.mark.parametrize("weight", [True, False])
def test_new_constants_of_a_form_are_weights_where_the_form_says_so(weight: bool) -> None:
    model = parse(
        """g (float[2,3] x) => (float[2,5] y) <int64[4] p = {0, 1, 0, 1}>
        { y = Pad<mode="reflect">(x, p) }"""
    )
    (node,) = model.graph
    form = FormFinder(TARGET).find(node)
    assert isinstance(form, LegalForm)
    for value in form.graph.initializers.values():
        if weight:
            value.meta[WEIGHT] = True
    before = set(model.graph.initializers)
    put(model, node, form)
    new = [value for name, value in model.graph.initializers.items() if name not in before]
    assert [bool(value.meta.get(WEIGHT)) for value in new] == [weight] * len(new) != []


def pair(text: str) -> tuple[LegalForm | Refusal, LegalForm | Refusal]:
    """Return what is found for two nodes of one model, by one finder."""
    model = parse(text)
    InferShapesPass()(model)
    finder = FormFinder(TARGET)
    left, right = (finder.find(node) for node in model.graph)
    return left, right


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('g (float[2,4] a, float[2,4] b) => (float[2,6] y, float[2,6] z) <int64[4] p = {0,1,0,1}> { y = Pad<mode="reflect">(a, p) z = Pad<mode="reflect">(b, p) }', True),
        ('g (float[2,4] a, float[3,4] b) => (float[2,6] y, float[3,6] z) <int64[4] p = {0,1,0,1}> { y = Pad<mode="reflect">(a, p) z = Pad<mode="reflect">(b, p) }', False),
        ('g (float[2,4] a, int32[2,4] b) => (float[2,6] y, int32[2,6] z) <int64[4] p = {0,1,0,1}> { y = Pad<mode="reflect">(a, p) z = Pad<mode="reflect">(b, p) }', False),
        ('g (float[2,4] a, float[2,4] b) => (float[2,6] y, float[2,6] z) <int64[4] p = {0,1,0,1}> { y = Pad<mode="reflect">(a, p) z = Pad<mode="edge">(b, p) }', False),
        ('g (float[2,4] a, float[2,4] b) => (float[2,6] y, float[2,6] z) <int64[4] p = {0,1,0,1}, int64[4] q = {0,2,0,0}> { y = Pad<mode="reflect">(a, p) z = Pad<mode="reflect">(b, q) }', False),
        ('g (float[3,4] a, float[3,4] b) => (float[3,3] y, float[3,3] z) { y = Einsum<equation="ij,kj->ik">(a, a) z = Einsum<equation="ij,kj->ik">(a, b) }', False),
        ('g (float[3,4] a, float[3,4] b) => (float[3,3] y, float[3,3] z) { y = Einsum<equation="ij,kj->ik">(a, b) z = Einsum<equation="ij,kj->ik">(b, a) }', True),
        ('g (float[3,4] a, float[3,4] b) => (float[3,3] y, float[3,3] z) { y = Einsum<equation="ij,kj->ik">(a, a) z = Einsum<equation="ij,kj->ik">(b, b) }', True),
        ('g (float[3,4] a) => (float[3,2] y, float[3,2] z, int64[3,2] i) <int64[1] k = {2}> { y, h = TopK(a, k) z, i = TopK(a, k) }', False),
        ('g (float[3,4] a) => (int64[3,2] i, int64[3,2] h) <int64[1] k = {2}> { y, i = TopK(a, k) z, h = TopK(a, k) }', True),
    ],
)  # fmt: skip
def test_nodes_have_one_form_where_nothing_that_it_depends_on_differs(
    text: str, same: bool
) -> None:
    left, right = pair(text)
    assert (left is right) is same


def test_a_form_says_which_operands_of_the_node_it_reads() -> None:
    model = parse(
        """g (float[2,3] x) => (float[2,3] y) <float[3] k = {1, 2, 3}, int64 one = {1}>
        { y = CumSum<reverse=1>(x, one) }"""
    )
    InferShapesPass()(model)
    (node,) = model.graph
    form = FormFinder(TARGET).find(node)
    assert isinstance(form, LegalForm)
    assert form.rule == "cumsum"
    assert all(name in form.graph.initializers for name in form.operands)
    weights = parse(
        'g (float[3,4] x) => (float[3,5] y) { y = Einsum<equation="ij,jk->ik">(x, w) }'.replace(
            "x)", "x, float[4,5] w)", 1
        )
    )
    add_weights(weights, {"w": np.ones((4, 5), np.float32)})
    (node,) = weights.graph
    InferShapesPass()(weights)
    form = FormFinder(TARGET).find(node)
    assert isinstance(form, LegalForm)
    assert form.operands == {"w": 0}


@pytest.mark.parametrize(("version", "legal"), [(17, False), (18, True)])
def test_rules_write_for_a_version_of_the_operators(version: int, legal: bool) -> None:
    model = parse(
        'g (float[3,4] x, float[4,5] w) => (float[3,5] y) { y = Einsum<equation="ij,jk->ik">(x, w) }'
    )
    model.graph.opset_imports[""] = version
    (node,) = model.graph
    found = FormFinder(TARGET).find(node)
    assert isinstance(found, LegalForm) is legal
    if isinstance(found, Refusal):
        assert found.reason == "the model keeps opset 17, and rules write for 18"
