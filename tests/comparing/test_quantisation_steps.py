from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import samba_onnx
from samba_onnx.comparing.quantisation_steps import output_steps, zero_point
from tests.passes.rewrites.applying import parse

CONSTANTS = (
    "<float s = {0.25}, float[3] each = {0.1, 0.2, 0.3}, int8 z = {1}, int64[1] shape = {-1}>"
)


@pytest.mark.parametrize(
    ("nodes", "steps"),
    [
        ("y = DequantizeLinear(q, s, z)", {"y": 0.25}),
        ("d = DequantizeLinear(q, s, z)\n t = Transpose(d)\n y = Reshape(t, shape)", {"y": 0.25}),
        ("d = DequantizeLinear(q, s, z)\n y = Relu(d)", {}),
        ("d = DequantizeLinear(q, s, z)\n y = Concat<axis=0>(d, d)", {}),
        ("y = DequantizeLinear(q, computed, z)", {}),
        ("y = DequantizeLinear<axis=1>(q, each)", {}),
    ],
)
def test_only_what_is_dequantised_last_by_one_scale_is_on_a_grid(
    nodes: str, steps: dict[str, float]
) -> None:
    text = f"g (int8[2,3] q, float computed) => (float[a] y) {CONSTANTS} {{ {nodes} }}"
    assert output_steps(parse(text)) == steps


@pytest.mark.parametrize(
    ("nodes", "zero"),
    [
        ("y = QuantizeLinear(x, s, z)", 1.0),
        ("q = QuantizeLinear(x, s, z)\n t = Transpose(q)\n y = Reshape(t, shape)", 1.0),
        ("y = QuantizeLinear(x, s)", 0.0),
        ("y = QuantizeLinear(x, s, computed)", None),
        ("q = QuantizeLinear(x, s, z)\n y = Add(q, q)", None),
        ("y = Cast<to=3>(x)", None),
    ],
)
def test_what_stands_for_zero_is_that_of_the_quantisation(nodes: str, zero: float | None) -> None:
    text = f"g (float[2,3] x, int8 computed) => (int8[a] y) {CONSTANTS} {{ {nodes} }}"
    assert zero_point(parse(text).graph.outputs[0]) == zero


def test_verify_tells_the_steps_of_quantised_outputs(tmp_path: Path) -> None:
    text = f"""g (float[2,3] x) => (float[2,3] y, int8[2,3] q, float[2,3] n) {CONSTANTS} {{
  n = Tanh(x)
  q = QuantizeLinear(n, s, z)
  y = DequantizeLinear(q, s, z)
}}"""
    path = tmp_path / "model.onnx"
    onnx.save(ir.to_proto(parse(text)), path)
    with samba_onnx.convert(path, sample=False, trial=False) as pef:
        compared = {output.name: output for output in samba_onnx.verify(path, pef).outputs}
    assert {name: output.steps for name, output in compared.items()} == {"y": 0, "q": 0, "n": None}
