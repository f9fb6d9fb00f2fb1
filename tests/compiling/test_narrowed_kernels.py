"""Operators that a target of 32 bits has: the emulator has kernels for each of them, once it is narrowed."""

from __future__ import annotations

import re
from pathlib import Path

import onnx

import samba_onnx

TARGET = """extends = "sn40l"
name = "short"
description = "an SN40L whose integers have 32 bits"
dtypes = ["bfloat16", "float32", "int8", "int16", "int32", "bool"]
"""
NODES = {
    "Abs": "y = Abs(a)",
    "Add": "y = Add(a, two)",
    "ArgMax": "t = ArgMax<keepdims=0>(a)\n y = Add(t, two)",
    "Clip": "y = Clip(a, zero, two)",
    "Concat": "y = Concat<axis=0>(a, a)",
    "CumSum": "y = CumSum(a, zero)",
    "Equal": "t = Equal(a, two)\n y = Cast<to=7>(t)",
    "Expand": "y = Expand(a, large)",
    "EyeLike": "t = EyeLike<dtype=7>(a)\n y = Add(t, a)",
    "Flatten": "y = Flatten(a)",
    "Gather": "y = Gather(table, a)",
    "GatherElements": "y = GatherElements(a, a)",
    "GatherND": "t = Unsqueeze(a, last)\n y = GatherND(table, t)",
    "Greater": "t = Greater(a, two)\n y = Cast<to=7>(t)",
    "GreaterOrEqual": "t = GreaterOrEqual(a, two)\n y = Cast<to=7>(t)",
    "Less": "t = Less(a, two)\n y = Cast<to=7>(t)",
    "LessOrEqual": "t = LessOrEqual(a, two)\n y = Cast<to=7>(t)",
    "Max": "y = Max(a, two)",
    "Min": "y = Min(a, two)",
    "Mul": "y = Mul(a, two)",
    "Neg": "y = Neg(a)",
    "OneHot": "y = OneHot(a, four, both)",
    "Pad": "y = Pad(a, pads)",
    "Pow": "y = Pow(f, a)",
    "ReduceMax": "y = ReduceMax<keepdims=0>(a, first)",
    "ReduceMin": "y = ReduceMin<keepdims=0>(a, first)",
    "ReduceSum": "y = ReduceSum<keepdims=0>(a, first)",
    "Reshape": "y = Reshape(a, last)",
    "ScatterElements": "y = ScatterElements(a, a, a)",
    "ScatterND": "t = Unsqueeze(a, last)\n y = ScatterND(table, t, a)",
    "Sign": "y = Sign(a)",
    "Slice": "y = Slice(a, first, pair)",
    "Split": "y, t = Split<axis=0, num_outputs=2>(a)",
    "Squeeze": "t = Unsqueeze(a, last)\n y = Squeeze(t, last)",
    "Sub": "y = Sub(a, two)",
    "Tile": "y = Tile(a, repeats)",
    "Transpose": "y = Transpose(a)",
    "Trilu": "y = Trilu(a)",
    "Where": "y = Where(b, a, two)",
}
KEPT = {"Flatten", "GatherND", "OneHot", "Pow"}
"""Those that stay as they are: a Flatten of two axes is none, GatherND takes places of int64 only, onnxruntime has OneHot
for some combinations of types, and an exponent keeps its type where the rest of a Pow is float32."""
CONSTANTS = """<int64[1] first = {0}, int64[1] last = {-1}, int64 zero = {0}, int64 two = {2}, int64 four = {4},
int64[2] both = {0, 1}, int64[2] repeats = {1, 2}, int64[4] pads = {1, 1, 0, 0}, int64[3] large = {2, 3, 3},
int64[1] pair = {2}, int64[3] table = {3, 1, 2}, float[3,3] f = {1, 2, 3, 4, 5, 6, 7, 8, 9}>"""


def test_every_operator_of_32_bits_runs(tmp_path: Path) -> None:
    """Whatever is narrowed, the emulator prepares and runs it, and the numbers are those of the original."""
    target = tmp_path / "short.toml"
    target.write_text(TARGET)
    lines = [re.sub(r"\b([ty])\b", rf"\1_{name}", nodes) for name, nodes in NODES.items()]
    body, outputs = "\n".join(lines), ", ".join(f"y_{name}" for name in NODES)
    text = f'<ir_version: 10, opset_import: ["" : 21]> g (bool[3,3] b) => ({outputs}) {CONSTANTS} {{ a = Cast<to=7>(b)\n {body} }}'
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text), data_prop=True)
    with samba_onnx.convert(
        model, tmp_path / "all.pef", target=target, legalise="all", sample=False, trial=False
    ) as pef:
        (rule,) = (rule for rule in pef.manifest.legalised if rule.rule == "narrow")
        compared = samba_onnx.verify(model, pef, threads=1).outputs
    assert NODES.keys() - rule.operators.keys() <= KEPT
    assert {output.name: output.passed for output in compared} == dict.fromkeys(
        (f"y_{name}" for name in NODES), True
    )
