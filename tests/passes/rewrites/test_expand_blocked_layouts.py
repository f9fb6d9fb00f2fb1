from __future__ import annotations

import pytest

from samba_onnx.errors import ExecutionError
from samba_onnx.passes.rewrites import expand_blocked_layouts
from samba_onnx.passes.rewrites.expand_blocked_layouts import ExpandBlockedLayoutsPass
from samba_onnx.passes.rewrites.refusals import UNEXPANDED
from tests.passes.rewrites.applying import add_weights, numbers, operators, parse

IMPORTS = ', "com.microsoft.nchwc": 1'
TWO = """g (float[1,3,6,6] x, float[16,3,3,3] w) => (float[1,16,1,1] y) {
        a = com.microsoft.nchwc.Conv(x, w)
        b = com.microsoft.nchwc.GlobalMaxPool(a)
        y = com.microsoft.nchwc.ReorderOutput<channels=16>(b)
    }"""


@pytest.fixture(autouse=True)
def blocks_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand_blocked_layouts, "channel_block", lambda: 8)


def test_nodes_before_and_after() -> None:
    model = add_weights(parse(TWO, imports=IMPORTS), {"w": numbers(16, 3, 3, 3)})
    for value in model.graph.node(1).outputs:
        value.shape, value.dtype = model.graph.outputs[0].shape, model.graph.outputs[0].dtype
    rewrite = ExpandBlockedLayoutsPass()
    assert rewrite(model).modified
    assert operators(model) == ["Constant", "Conv", "GlobalMaxPool", "Identity"]
    assert model.graph.node(3).inputs[0] is model.graph.node(2).outputs[0]
    assert "in blocks of 8 channels" in rewrite.notes[0]
    assert not rewrite(model).modified


def test_one_that_cannot_be_expanded_keeps_all() -> None:
    model = parse(TWO, imports=IMPORTS)
    rewrite = ExpandBlockedLayoutsPass()
    assert not rewrite(model).modified
    assert operators(model) == ["Conv", "GlobalMaxPool", "ReorderOutput"]
    assert "its weight 'w' is not constant" in rewrite.notes[0]
    assert len(rewrite.refusals.lines()) == 3
    assert "ORT_ENABLE_EXTENDED saves a model that is the same on every machine" in rewrite.notes[0]
    assert all("not constant" in node.meta[UNEXPANDED] for node in model.graph)
    # what was tried reads nothing any more
    assert [len(value.uses()) for value in model.graph.inputs] == [1, 1]


@pytest.mark.parametrize("channels", [12, 20])
def test_a_weight_without_whole_blocks_was_saved_elsewhere(channels: int) -> None:
    text = TWO.replace("16", str(channels))
    model = add_weights(parse(text, imports=IMPORTS), {"w": numbers(channels, 3, 3, 3)})
    rewrite = ExpandBlockedLayoutsPass()
    assert not rewrite(model).modified
    assert "it was saved on another kind of machine" in rewrite.notes[0]


def test_a_processor_without_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise ExecutionError("onnxruntime has none")

    monkeypatch.setattr(expand_blocked_layouts, "channel_block", refuse)
    model = add_weights(parse(TWO, imports=IMPORTS), {"w": numbers(16, 3, 3, 3)})
    rewrite = ExpandBlockedLayoutsPass()
    assert not rewrite(model).modified
    assert "onnxruntime has none" in rewrite.notes[0]


def test_branches_and_old_versions_keep_all() -> None:
    text = """g (bool c, float[1,8,2,2] x) => (float[1,8,2,2] y) {
        y = If (c) <then_branch = t () => (float[1,8,2,2] a) { a = com.microsoft.nchwc.ReorderInput(x) },
                    else_branch = e () => (float[1,8,2,2] b) { b = Neg(x) }> }"""
    rewrite = ExpandBlockedLayoutsPass()
    assert not rewrite(parse(text, imports=IMPORTS)).modified
    assert "are not expanded: some of them are in branches or loops; " in rewrite.notes[0]
    assert not rewrite(parse(TWO, imports=IMPORTS, opset=17)).modified
    assert "the model keeps opset 17" in rewrite.notes[0]


def test_an_operator_without_a_rule_keeps_all() -> None:
    rewrite = ExpandBlockedLayoutsPass()
    text = "g (float[1,8,2,2] x) => (float[1,8,2,2] y) { y = com.microsoft.nchwc.Own(x) }"
    assert not rewrite(parse(text, imports=IMPORTS)).modified
    assert rewrite.refusals.lines() == ("Own 'y': there is no rule for Own",)
