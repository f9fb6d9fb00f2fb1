"""Each rule that the targets name: a graph that it fuses, and the closest one that it must not."""

from __future__ import annotations

import pytest

from samba_onnx.passes.planning.fusion.pytorch_names import operator_names
from samba_onnx.passes.targets import available_targets, load_target
from tests.passes.planning.fusion.fused import DEFAULT, sections

LINEAR = "float[4, 8] x, float[8, 8] w, float[8] b"
ATTENTION = "float[2, 4, 6, 8] q, float[2, 4, 6, 8] k, float[2, 4, 6, 8] v"


@pytest.mark.parametrize("name", available_targets())
def test_every_target_names_rules(name: str) -> None:
    assert load_target(name).fusion_rules is not None


def test_every_rule_can_match_and_says_nothing_without_effect() -> None:
    names = operator_names()
    assert DEFAULT.notes == ()
    assert len({rule.name for rule in DEFAULT.rules}) == len(DEFAULT.rules) == 12
    for rule in DEFAULT.rules:
        assert rule.unknown == ()
        assert all(names.onnx_operators(op) or op in names.forms for op in rule.operators())


CASES: dict[str, tuple[str, list[str]]] = {
    "linear with activation": (
        f"g ({LINEAR}) => (y) {{ a = Gemm(x, w, b) y = Relu(a) }}",
        ["linear_activation: Gemm Relu"],
    ),
    "product and bias with activation": (
        f"g ({LINEAR}) => (y) {{ a = MatMul(x, w) c = Add(a, b) y = Tanh(c) }}",
        ["linear_activation: MatMul Add Tanh"],
    ),
    "gelu written out": (
        f"""g ({LINEAR}) => (y) <float h = {{0.5}}, float e = {{3.0}}> {{
            a = Gemm(x, w, b) c = Mul(a, h) d = Pow(a, e) f = Mul(d, h) i = Add(a, f) j = Mul(i, h)
            k = Tanh(j) l = Add(k, h) y = Mul(c, l) }}""",
        ["linear_activation: Gemm Mul Pow Mul Add Mul Tanh Add Mul"],
    ),
    "silu written out, gated": (
        f"""g ({LINEAR}) => (y) {{
            a = MatMul(x, w) s = Sigmoid(a) t = Mul(a, s) c = MatMul(x, w) y = Mul(t, c) }}""",
        ["gated_linear: MatMul Sigmoid Mul MatMul Mul"],
    ),
    "a product of activations is no linear": (
        "g (float[2, 4, 8] x, float[2, 8, 8] w) => (y) { a = MatMul(x, w) y = Relu(a) }",
        ["MatMul", "Relu"],
    ),
    "another operator in between": (
        f"g ({LINEAR}) => (y) {{ a = Gemm(x, w, b) c = Neg(a) y = Relu(c) }}",
        ["linear: Gemm", "Neg", "Relu"],
    ),
    "rms norm in float32": (
        """g (bfloat16[4, 8] x, bfloat16[4, 8] r, bfloat16[8] w) => (y) <float e = {0.1}, int64[1] last = {1}> {
            h = Add(x, r) a = Cast<to = 1>(h) b = Mul(a, a) m = ReduceMean(b, last) c = Add(m, e) d = Sqrt(c)
            i = Reciprocal(d) f = Mul(a, i) n = Cast<to = 16>(f) y = Mul(w, n) }""",
        ["residual_norm: Add Cast Mul ReduceMean Add Sqrt Reciprocal Mul Cast Mul"],
    ),
    "rotary embedding": (
        """g (float[2, 4, 8] q, float[4, 8] c, float[4, 8] s) => (y)
            <int64[1] n = {0}, int64[1] h = {4}, int64[1] e = {8}, int64[1] last = {2}> {
            a = Mul(q, c) l = Slice(q, n, h, last) u = Slice(q, h, e, last) v = Neg(u)
            t = Concat<axis = 2>(v, l) r = Mul(t, s) y = Add(a, r) }""",
        ["rotary_embedding: Mul Slice Slice Neg Concat Mul Add"],
    ),
    "rotary embedding of chunks": (
        """g (float[2, 4, 8] q, float[4, 8] c, float[4, 8] s) => (y) <int64[2] n = {4, 4}> {
            a = Mul(q, c) l, u = Split<axis = 2>(q, n) v = Neg(u)
            t = Concat<axis = 2>(v, l) r = Mul(t, s) y = Add(a, r) }""",
        ["rotary_embedding_of_chunks: Mul Split Neg Concat Mul Add"],
    ),
    "halves that are not turned": (
        """g (float[2, 4, 8] q, float[4, 8] c, float[4, 8] s) => (y)
            <int64[1] n = {0}, int64[1] h = {4}, int64[1] e = {8}, int64[1] last = {2}> {
            a = Mul(q, c) l = Slice(q, n, h, last) u = Slice(q, h, e, last)
            t = Concat<axis = 2>(u, l) r = Mul(t, s) y = Add(a, r) }""",
        ["Mul", "Slice", "Slice", "Concat", "Mul", "Add"],
    ),
    "attention": (
        f"""g ({ATTENTION}) => (y) <float s = {{0.5}}> {{
            t = Transpose<perm = [0, 1, 3, 2]>(k) a = MatMul(q, t) c = Mul(a, s) d = Softmax(c)
            e = MatMul(d, v) y = Transpose<perm = [0, 2, 1, 3]>(e) }}""",
        ["attention: Transpose MatMul Mul Softmax MatMul Transpose"],
    ),
    "attention of one projection, masked in whole rows": (
        """g (float[2, 12, 6, 8] x, float[2, 1, 6, 6] m) => (y)
           <float s = {0.5}, int64[3] n = {4, 4, 4}, int64[3] u = {2, 6, 32}> {
            q, k, v = Split<axis = 1>(x, n) t = Transpose<perm = [0, 1, 3, 2]>(k)
            o = Mul(q, s) p = Mul(t, s) a = MatMul(o, p) c = Add(a, m) d = Softmax(c)
            i = IsNaN(d) z = Where(i, s, d) e = MatMul(z, v)
            f = Transpose<perm = [0, 2, 1, 3]>(e) y = Reshape(f, u) }""",
        [
            "attention_of_one_projection: Split Transpose Mul Mul MatMul Add Softmax IsNaN Where "
            "MatMul Transpose Reshape"
        ],
    ),
    "attention in bfloat16, with scores in float32": (
        """g (bfloat16[2, 4, 6, 8] q, bfloat16[2, 4, 6, 8] k, bfloat16[2, 4, 6, 8] v) => (y)
           <float s = {0.5}> {
            t = Transpose<perm = [0, 1, 3, 2]>(k) i = Cast<to = 1>(q) j = Cast<to = 1>(t)
            a = MatMul(i, j) b = Mul(a, s) d = Softmax(b) e = Cast<to = 16>(d) f = MatMul(e, v)
            y = Transpose<perm = [0, 2, 1, 3]>(f) }""",
        ["attention: Transpose Cast Cast MatMul Mul Softmax Cast MatMul Transpose"],
    ),
    "attention in bfloat16, by a factor that it lacks": (
        """g (bfloat16[2, 4, 6, 8] q, bfloat16[2, 4, 6, 8] k, bfloat16[2, 4, 6, 8] v) => (y)
           <float s = {0.3}> {
            t = Transpose<perm = [0, 1, 3, 2]>(k) a = MatMul(q, t) w = Cast<to = 1>(a)
            b = Div(w, s) n = Cast<to = 16>(b) d = Softmax(n) y = MatMul(d, v) }""",
        ["attention: Transpose MatMul Cast Div Cast Softmax MatMul"],
    ),
    "attention as one operator": (
        f"""g ({ATTENTION}) => (y) {{ a = Attention(q, k, v)
            y = Transpose<perm = [0, 2, 1, 3]>(a) }}""",
        ["attention_operator: Attention Transpose"],
    ),
    "softmax that weights nothing": (
        f"""g ({ATTENTION}) => (y) {{
            t = Transpose<perm = [0, 1, 3, 2]>(k) a = MatMul(q, t) y = Softmax(a) }}""",
        ["Transpose", "MatMul", "Softmax"],
    ),
    "norm of a sum": (
        "g (float[4, 8] x, float[4, 8] r, float[8] w) => (y, s) "
        "{ s = Add(x, r) y = LayerNormalization(s, w) }",
        ["residual_norm: Add LayerNormalization"],
    ),
    "rms norm of a sum, written out": (
        """g (float[4, 8] x, float[4, 8] r, float[8] w) => (y)
           <float e = {2.0}, int64[1] n = {-1}> {
            s = Add(x, r) p = Pow(s, e) m = ReduceMean(p, n) a = Add(m, e) q = Sqrt(a)
            i = Reciprocal(q) t = Mul(s, i) y = Mul(w, t) }""",
        ["residual_norm: Add Pow ReduceMean Add Sqrt Reciprocal Mul Mul"],
    ),
    "norm alone": (
        """g (float[4, 8] s, float[8] w) => (y)
           <float e = {2.0}, int64[1] n = {-1}> {
            p = Pow(s, e) m = ReduceMean(p, n) a = Add(m, e) q = Sqrt(a) i = Reciprocal(q)
            t = Mul(s, i) y = Mul(w, t) }""",
        ["norm: Pow ReduceMean Add Sqrt Reciprocal Mul Mul"],
    ),
    "a mean that somebody else reads is no norm": (
        """g (float[4, 8] s, float[8] w) => (y, m)
           <float e = {2.0}, int64[1] n = {-1}> {
            p = Pow(s, e) m = ReduceMean(p, n) a = Add(m, e) q = Sqrt(a) i = Reciprocal(q)
            t = Mul(s, i) y = Mul(w, t) }""",
        ["Pow", "ReduceMean", "Add", "Sqrt", "Reciprocal", "Mul", "Mul"],
    ),
    "a sum behind a norm": (
        "g (float[4, 8] x, float[8] w) => (y) { a = LayerNormalization(x, w) y = Add(a, x) }",
        ["norm: LayerNormalization", "Add"],
    ),
    "convolution, norm, activation": (
        """g (float[1, 2, 8, 8] x, float[2, 2, 3, 3] w, float[2] s) => (y) {
            a = Conv(x, w) c = BatchNormalization(a, s, s, s, s) y = Relu(c) }""",
        ["conv_block: Conv BatchNormalization Relu"],
    ),
    "convolution, sum, activation": (
        """g (float[1, 2, 8, 8] x, float[2, 2, 1, 1] w) => (y) {
            a = Conv(x, w) c = Add(a, x) y = Relu(c) }""",
        ["conv_block: Conv Add Relu"],
    ),
    "convolution and norm": (
        """g (float[1, 2, 8, 8] x, float[2, 2, 3, 3] w, float[2] s) => (y) {
            a = Conv(x, w) y = BatchNormalization(a, s, s, s, s) }""",
        ["conv_norm: Conv BatchNormalization"],
    ),
    "convolution before pooling": (
        """g (float[1, 2, 8, 8] x, float[2, 2, 3, 3] w) => (y) {
            a = Conv(x, w) c = MaxPool<kernel_shape = [2, 2]>(a) y = Relu(c) }""",
        ["Conv", "MaxPool", "Relu"],
    ),
    "linear as one matrix": (
        """g (float[2, 4, 8] x, float[8, 8] w) => (y)
           <int64[2] m = {8, 8}, int64[3] n = {2, 4, 8}> {
            a = Reshape(x, m) c = Gemm(a, w) y = Reshape(c, n) }""",
        ["linear: Reshape Gemm Reshape"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_default_rule(text: str, expected: list[str]) -> None:
    assert sections(text) == expected


def test_nothing_is_fused_across_a_fallback() -> None:
    """The fallback feeds the activation, too: what is before it runs before it."""
    text = f"g ({LINEAR}) => (y) {{ a = MatMul(x, w) c = Cos(a) d = Add(a, c) y = Relu(d) }}"
    assert sections(text) == ["linear: MatMul", "Cos", "Add", "Relu"]
