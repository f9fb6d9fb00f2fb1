"""Recurrent layers as tf2onnx writes Keras': loops without a trip count, whose conditions compare counters as floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.parser
import pytest

import samba_onnx
from samba_onnx.comparing.verification import verify

HEADER = '<ir_version: 8, opset_import: ["" : 15]>\n'

# The loop of a layer of steps: counter of the loop, time, state, the number of steps, weights, and the results.
LAYER = """g (float[batch, 12, 5] x) => (float[batch, 6] y)
<float zero = {{0}}, float twelve = {{12}}, int32 start = {{0}}, int32 steps = {{12}}, int32 one = {{1}}, int64[1] six = {{6}},
 int64[1] first = {{0}}, int64[1] second = {{1}}, int64[1] last = {{-1}}, int64[1] end = {{9223372036854775807}},
 float[5, {gates}] w, float[6, {gates}] u, float[{gates}] b, int64[{pieces}] cut = {{{cut}}}> {{
  turned = Transpose <perm = [1, 0, 2]> (x)
  {before}
  s = Shape(x) rows = Slice(s, first, second, first) size = Concat <axis = 0> (rows, six) nothing = Expand(zero, size)
  begins = Less(zero, twelve)
  time, state, {carried}n, wo, uo, bo, all = Loop (, begins, start, nothing, {initial}steps, w, u, b) <body = step
    (int64 turn, bool before, int32 t, float[r, 6] h, {inside}int32 m, float[5, {gates}] v, float[6, {gates}] q, float[{gates}] c)
    => (bool again, int32 later, float[r2, 6] new, {results}int32 mo, float[5, {gates}] vo, float[6, {gates}] qo, float[{gates}] co,
        float[r3, 6] each) {{
      later = Add(t, one) row = Gather <axis = 0> (read, t) {cell} each = Identity(new)
      mo = Identity(m) vo = Identity(v) qo = Identity(q) co = Identity(c)
      less = Cast <to = 1> (later) more = Cast <to = 1> (m) again = Less(less, more) }}>
  end_of = Slice(all, last, end, first) y = Squeeze(end_of, first)
}}"""
SIMPLE = "a = MatMul(row, v) d = Add(a, c) e = MatMul(h, q) f = Add(d, e) new = Sigmoid(f)"
GRU = """a = MatMul(row, v) d = Add(a, c) e = MatMul(h, q) f = Add(d, e) zz, rr, oo = Split <axis = 1> (f, cut)
    za = Sigmoid(zz) ra = Tanh(rr) zb = Mul(za, h) zc = Mul(ra, za) new = Add(zb, zc)"""
LSTM = """a = MatMul(row, v) d = Add(a, c) e = MatMul(h, q) f = Add(d, e) ii, ff, gg, oo = Split <axis = 1> (f, cut)
    ia = Sigmoid(ii) fa = Sigmoid(ff) ga = Elu(gg) oa = Sigmoid(oo) k1 = Mul(fa, cell) k2 = Mul(ia, ga)
    cellout = Add(k1, k2) ca = Elu(cellout) new = Mul(oa, ca)"""
PLAIN = {
    "before": "read = Identity(turned)",
    "carried": "",
    "initial": "",
    "inside": "",
    "results": "",
}
BACKWARDS = """twelves = Expand(steps, rows) longs = Cast <to = 7> (twelves)
  read = ReverseSequence <batch_axis = 1, time_axis = 0> (turned, longs)"""
CARRIED = {
    "carried": "cells, ",
    "initial": "nothing, ",
    "inside": "float[r4, 6] cell, ",
    "results": "float[r5, 6] cellout, ",
}

LAYERS = {
    "simple": {**PLAIN, "gates": 6, "pieces": 1, "cut": "6", "cell": SIMPLE},
    "gru, one piece of whose gates is empty": {
        **PLAIN,
        "gates": 12,
        "pieces": 3,
        "cut": "6, 6, 0",
        "cell": GRU,
    },
    "lstm, backwards": {
        **PLAIN,
        **CARRIED,
        "before": BACKWARDS,
        "gates": 24,
        "pieces": 4,
        "cut": "6, 6, 6, 6",
        "cell": LSTM,
    },
}


def layer(parts: dict[str, object]) -> onnx.ModelProto:
    text = LAYER.format(**parts)
    weights = {"w": (5, parts["gates"]), "u": (6, parts["gates"]), "b": (parts["gates"],)}
    for name, shape in weights.items():  # declared in the text for the reader, given below
        text = text.replace(f" float[{', '.join(map(str, shape))}] {name},", "", 1)
    model = onnx.parser.parse_model(HEADER + text)
    rng = np.random.default_rng(0)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 2, name)  # type: ignore[arg-type]
        for name, shape in weights.items()
    )
    return model


@pytest.mark.parametrize("parts", LAYERS.values(), ids=LAYERS.keys())
@pytest.mark.parametrize("batch", [1, 3])
def test_recurrent_layers_of_keras_run_on_the_rdu(
    parts: dict[str, object], batch: int, tmp_path: Path
) -> None:
    model = layer(parts)
    with samba_onnx.convert(model, tmp_path / "k.pef", dims={"batch": batch}, sample=False) as pef:
        assert not pef.manifest.fallbacks
        assert verify(model, pef).passed
