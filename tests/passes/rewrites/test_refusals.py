"""A rewrite that does not apply to a node says why."""

from __future__ import annotations

import logging

import onnx_ir as ir
import pytest

from samba_onnx.passes.pipeline import run_pipeline
from samba_onnx.passes.rewrites.batch_scans import BatchScansPass
from samba_onnx.passes.rewrites.drop_empty_operands import DropEmptyOperandsPass
from samba_onnx.passes.rewrites.drop_zero_states import DropZeroStatesPass
from samba_onnx.passes.rewrites.expand_functions import ExpandFunctionsPass
from samba_onnx.passes.rewrites.fold_batch_normalization import FoldBatchNormalizationPass
from samba_onnx.passes.rewrites.fold_constants import FoldConstantsPass
from samba_onnx.passes.rewrites.fold_shapes import FoldShapesPass
from samba_onnx.passes.rewrites.fold_transposes import FoldTransposesPass
from samba_onnx.passes.rewrites.hoist_over_split import HoistOverSplitPass
from samba_onnx.passes.rewrites.inline_branches import InlineBranchesPass
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.merge_linears import MergeLinearsPass
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal, Refusals
from samba_onnx.passes.rewrites.remove_noops import RemoveNoopsPass
from samba_onnx.passes.rewrites.unpack_sequences import UnpackSequencesPass
from samba_onnx.passes.rewrites.unroll_loops import UnrollLoopsPass
from tests.passes.rewrites.applying import Knows, KnowsAll, add_weights, numbers, parse

BRANCHES = "<then_branch = t () => (float[2] a) { a = Neg(x) }, else_branch = e () => (float[2] b) { b = Abs(x) }>"  # fmt: skip

STEP = "b (float[2] e) => (float[2] r) { r = Softmax(e) }"


@pytest.mark.parametrize(
    ("rewrite", "graph", "reason"),
    [
        (
            RemoveNoopsPass(),
            "(float[2,3] x) => (float[3,2] y) { y = Transpose(x) }",
            "Transpose 'y': it changes the order of axes",
        ),
        (
            FoldShapesPass(),
            "(float[2,3] x, int64[2] s) => (float[?,?] y) { y = Reshape(x, s) }",
            "Reshape 'y': nothing is known of its shape operand",
        ),
        (
            FoldConstantsPass(),
            "(float[2] x) => (int32[1] y) <int32[1] a = {1}, int32[1] b = {0}> { y = Div(a, b) }",
            "Div 'y': it would divide by zero, overflow, or is undefined for these operands",
        ),
        (
            FoldTransposesPass(),
            "(float[2,3] x, float[4,3] w) => (float[2,4] y) { t = Transpose(w)\n y = MatMul(x, t) }",
            "MatMul 'y': what is transposed is no constant matrix",
        ),
        (
            FoldBatchNormalizationPass(),
            "(float[2,3] x, float[3] s) => (float[2,3] y) { h = Relu(x)\n y = BatchNormalization(h, s, s, s, s) }",
            "BatchNormalization 'y': no Conv, ConvTranspose or Gemm is before it",
        ),
        (
            MergeLinearsPass(),
            "(float[2,3] x, float[3,3] v, float[3,3] w) => (float[2,3] y, float[2,3] z) { y = MatMul(x, v)\n z = MatMul(x, w) }",
            "MatMul 'y': one product and a Split would be as many nodes",
        ),
        (
            HoistOverSplitPass(),
            "(float[2,4] x) => (float[2,2] y, float[2,2] z) { p, q = Split<axis=1, num_outputs=2>(x)\n y = Neg(p)\n z = Abs(q) }",
            "Split 'p': its pieces are read by different operators",
        ),
        (
            UnpackSequencesPass(),
            "(float[2,4] x, int64 n) => (float[2,1] y) { s = SplitToSequence<axis=1>(x)\n y = Identity(n) }",
            "SplitToSequence 's': its sequence is read by more than SequenceAt with a constant place",
        ),
        (
            DropZeroStatesPass(),
            "(float[2,1,2] x, float[1,3,2] w, float[1,3,3] r, float[1,1,3] h) => (y) { y = RNN<hidden_size=3>(x, w, r,,, h) }",
            "RNN 'y': its initial state is not known to be zero",
        ),
        (
            DropEmptyOperandsPass(),
            "(float[1,1,2,2] x, float[4] s) => (y) { y = Resize(x,, s) }",
            "Resize 'y': none of its operands is empty",
        ),
        (
            UnrollLoopsPass(KnowsAll()),
            f"(float[n,2] x) => (float[n,2] y) {{ y = Scan <num_scan_inputs = 1, body = {STEP}> (x) }}",
            "Scan 'y': dimension 0 of 'x' is not static",
        ),
        (
            BatchScansPass(),
            f"(float[3,2] x) => (float[3,2] y) {{ y = Scan <num_scan_inputs = 1, body = {STEP}> (x) }}",
            "Scan 'y': Softmax of its body is not computed for all steps at once",
        ),
        (
            InlineBranchesPass(),
            f"(bool c, float[2] x) => (float[2] y) {{ y = If (c) {BRANCHES} }}",
            "If 'y': its condition is only known at run time",
        ),
        (
            LiftConstantsPass(),
            "(float[2] x) => (float[2] y) { y = Constant() }",
            "Constant 'y': it holds a sparse tensor, or a parameter of a function",
        ),
        (
            ExpandFunctionsPass(Knows("Mul")),
            "(float[2] x) => (float[2] y) { y = Gelu(x) }",
            "Gelu 'y': its body needs operators that the target lacks too",
        ),
    ],
    ids=lambda item: type(item).__name__ if isinstance(item, ir.passes.PassBase) else "",
)
def test_a_pass_says_why_it_leaves_a_node(rewrite: ReasonedPass, graph: str, reason: str) -> None:
    model = parse(f"g {graph}")
    if isinstance(rewrite, MergeLinearsPass):
        add_weights(model, {"v": numbers(3, 3), "w": numbers(3, 3)})
    assert not rewrite(model).modified
    assert rewrite.refusals.lines() == (reason,)


def test_equal_reasons_are_counted() -> None:
    refusals = Refusals()
    for name in ("first", "second", "third"):
        assert not refusals.applied(ir.node("Cast", [], name=name), Refusal("it changes the type"))
    assert refusals.applied(ir.node("Cast", []), None)
    assert not refusals.applied(ir.node("Pad", [], name="pad"), Refusal("it adds elements"))
    assert refusals.lines() == (
        "Cast 'first' and 2 more: it changes the type",
        "Pad 'pad': it adds elements",
    )


def test_a_node_without_a_name_is_called_by_what_it_computes() -> None:
    refusals = Refusals()
    node = ir.node("Split", [], num_outputs=2)
    node.outputs[1].name = "second"
    refusals.applied(node, Refusal("it stays"))
    refusals.applied(ir.node("Cast", []), Refusal("it stays"))
    refusals.applied(ir.node("Cast", [], name="other"), Refusal("it stays"))
    assert refusals.lines() == ("Split 'second': it stays", "Cast '' and 1 more: it stays")


def test_the_pipeline_logs_reasons(caplog: pytest.LogCaptureFixture) -> None:
    model = parse("g (float[2,3] x, float[4,3] w) => (float[2,4] y) { t = Transpose(w)\n y = MatMul(x, t) }")  # fmt: skip
    with caplog.at_level(logging.DEBUG, logger="samba_onnx.passes.pipeline"):
        run_pipeline(model, KnowsAll())
    assert "RemoveNoops left Transpose 't': it changes the order of axes" in caplog.messages
    tied = parse("g (float[2,3] x, float[4,3] w) => (float[2,4] y) { t = Transpose(w)\n y = MatMul(x, t) }")  # fmt: skip
    caplog.clear()
    run_pipeline(add_weights(tied, {"w": numbers(4, 3)}), KnowsAll())
    assert not caplog.messages
