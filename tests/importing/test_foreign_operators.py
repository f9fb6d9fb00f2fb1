"""Models that onnxruntime's optimizer has fused, as modules that can be trained."""

from __future__ import annotations

import torch

import samba_onnx as samba
from tests.backend_cases import run_onnxruntime
from tests.importing.building import parse, ramp

FUSED = """g (float[2,3,4] x) => (float[2,3,4] y) {
    a = com.microsoft.FusedMatMul<transB=1, alpha=0.5>(x, w)
    s, , , t = com.microsoft.SkipLayerNormalization<epsilon=0.001>(a, x, scale, shift, bias)
    g = com.microsoft.BiasGelu(s, more)
    r = SimplifiedLayerNormalization<axis=-1>(t, other)
    y = Add(g, r)
}"""


def test_a_fused_model_computes_and_has_gradients() -> None:
    weights = {"w": ramp(4, 4), "scale": ramp(4), "shift": ramp(4) * 0.1, "bias": ramp(4) * 0.3}
    weights |= {"other": ramp(4) * 0.7, "more": ramp(4) * 0.2}
    proto = parse(FUSED, **weights)
    proto.opset_import.add(domain="com.microsoft", version=1)
    value = torch.from_numpy(ramp(2, 3, 4)).requires_grad_()
    module = samba.from_onnx(proto)
    result = module(value)
    (expected,) = run_onnxruntime(proto.SerializeToString(), [value.detach().numpy()])
    torch.testing.assert_close(result.detach(), torch.from_numpy(expected), rtol=1e-5, atol=1e-6)
    result.square().sum().backward()
    assert {name for name, _ in module.named_parameters()} == set(weights)
    assert all(parameter.grad is not None for parameter in module.parameters())
    # the derivative along a direction, by torch's forward in float64-free central differences
    direction = torch.from_numpy(ramp(2, 3, 4)).roll(1)
    step = 1e-2
    with torch.no_grad():
        ahead, behind = (module(value + sign * step * direction).square().sum() for sign in (1, -1))
    measured = (ahead - behind) / (2 * step)
    assert value.grad is not None
    # central differences of float32: their own error is about 1e-7 of the sum over the step
    torch.testing.assert_close((value.grad * direction).sum(), measured, rtol=2e-3, atol=1e-2)
