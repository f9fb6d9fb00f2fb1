"""Normalisations by means of many numbers, written as sums: beside torch in float64, and what stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  everybody calls it so

from samba_onnx.runtime.engine.lowerings.long_statistics import LONG, write_statistics
from samba_onnx.runtime.engine.lowerings.long_sums import add_in_stages

EPS = 2.0**-23
FEW_ULPS = 8
"""Units of the largest result that are always allowed: the result has five operations after its statistics."""
HEADER = '<ir_version: 11, opset_import: ["" : 23]>\n'


@dataclass(frozen=True)
class Case:
    text: str
    shape: tuple[int, ...]
    scale: tuple[int, ...]
    torch: Callable[[Tensor, Tensor, Tensor], Tensor]


def case(
    operator: str,
    shape: tuple[int, ...],
    scale: tuple[int, ...],
    torch_function: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Case:
    sizes, parameters = (",".join(map(str, each)) for each in (shape, scale))
    operands = "x, w" if operator.startswith("RMS") else "x, w, b"
    text = (
        f"g (float[{sizes}] x, float[{parameters}] w, float[{parameters}] b) => (float[{sizes}] y) "
        f"{{ y = {operator}({operands}) }}"
    )
    return Case(text, shape, scale, torch_function)


CASES: Mapping[str, Case] = {
    "groups of few numbers": case(
        "GroupNormalization<num_groups=3>",
        (2, 6, 5, 7),
        (6,),
        lambda x, w, b: F.group_norm(x, 3, w, b),
    ),
    "groups of many": case(
        "GroupNormalization<num_groups=2, epsilon=0.001>",
        (2, 4, 300, 200),
        (4,),
        lambda x, w, b: F.group_norm(x, 2, w, b, 1e-3),
    ),
    "planes": case(
        "InstanceNormalization<epsilon=0.001>",
        (2, 3, 100, 77),
        (3,),
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b, eps=1e-3),
    ),
    "rows": case(
        "LayerNormalization<axis=-1>",
        (2, 100_000),
        (100_000,),
        lambda x, w, b: F.layer_norm(x, w.shape, w, b),
    ),
    "rows of several axes": case(
        "LayerNormalization<axis=1, epsilon=0.01>",
        (2, 300, 250),
        (300, 250),
        lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-2),
    ),
    "roots of mean squares": case(
        "RMSNormalization<axis=1, epsilon=0.01>",
        (3, 9000),
        (9000,),
        lambda x, w, b: F.rms_norm(x, w.shape, w, 1e-2),
    ),
}
NUMBERS: dict[str, Callable[[tuple[int, ...]], Tensor]] = {
    "equal": lambda shape: torch.full(shape, 0.1),
    "random": lambda shape: torch.rand(shape),
    "far from zero": lambda shape: torch.randn(shape) + 100,
}


def run(proto: onnx.ModelProto, *values: Tensor) -> list[Tensor]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options)
    names = [value.name for value in session.get_inputs()]
    feed = {name: value.numpy() for name, value in zip(names, values, strict=True)}
    return [torch.from_numpy(np.array(result)) for result in session.run(None, feed)]


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("name", CASES)
def test_a_normalisation_is_as_near_to_float64_as_torchs(name: str, kind: str) -> None:
    this = CASES[name]
    torch.manual_seed(0)
    value, scale = NUMBERS[kind](this.shape), torch.rand(this.scale)
    shift = torch.rand(this.scale)
    proto = onnx.parser.parse_model(HEADER + this.text)
    assert write_statistics(proto) == {}
    add_in_stages(proto)
    onnx.checker.check_model(proto, full_check=True)
    exact = this.torch(value.double(), scale.double(), shift.double())
    size = exact.abs().max()
    (result,) = run(proto, value, scale, shift)
    torchs = (this.torch(value, scale, shift).double() - exact).abs().max() / size
    assert result.shape == exact.shape
    assert (result.double() - exact).abs().max() / size <= max(2 * torchs, FEW_ULPS * EPS)


def test_statistics_are_returned() -> None:
    proto = onnx.parser.parse_model(
        HEADER + "g (float[3,80000] x, float[80000] w) => (float[3,80000] y, float[3,1] m, "
        "float[3,1] i) { y, m, i = LayerNormalization<epsilon=0.5>(x, w) }"
    )
    assert write_statistics(proto) == {}
    add_in_stages(proto)
    torch.manual_seed(0)
    value = torch.rand(3, 80_000) + 3
    _, mean, inverse = run(proto, value, torch.rand(80_000))
    wide = value.double()
    torch.testing.assert_close(mean.double(), wide.mean(1, keepdim=True), rtol=EPS, atol=0)
    expected = (wide.var(1, correction=0, keepdim=True) + 0.5).rsqrt()
    torch.testing.assert_close(inverse.double(), expected, rtol=4 * EPS, atol=0)


def test_onnxruntime_alone_loses_a_large_mean() -> None:
    """What the lowering is for: whoever finds this to fail may drop the row."""
    this = CASES["groups of many"]
    value, one = NUMBERS["far from zero"](this.shape), torch.ones(this.scale)
    (result,) = run(onnx.parser.parse_model(HEADER + this.text), value, one, one)
    exact = this.torch(value.double(), one.double(), one.double())
    assert (result.double() - exact).abs().max() / exact.abs().max() > 100 * FEW_ULPS * EPS


STAYS = {
    "float16": (
        "g (float16[2,3,9000] x, float16[3] w) => (float16[2,3,9000] y)",
        "shape or type of its operand are not declared, or not float32",
    ),
    "an unknown size": (
        "g (float[2,3,N] x, float[3] w) => (float[2,3,N] y)",
        "shape or type of its operand are not declared, or not float32",
    ),
    "small planes": (
        "g (float[2,3,64,64] x, float[3] w) => (float[2,3,64,64] y)",
        "few numbers belong to a mean",
    ),
}


@pytest.mark.parametrize(("head", "reason"), STAYS.values(), ids=STAYS.keys())
def test_others_stay(head: str, reason: str) -> None:
    proto = onnx.parser.parse_model(HEADER + head + " { y = InstanceNormalization(x, w, w) }")
    content = proto.SerializeToString(deterministic=True)
    assert write_statistics(proto) == {"y": reason}
    assert proto.SerializeToString(deterministic=True) == content


def test_every_operator_of_the_table_is_tested() -> None:
    assert {
        operator for operator in LONG if any(f"= {operator}<" in c.text for c in CASES.values())
    } == set(LONG)
