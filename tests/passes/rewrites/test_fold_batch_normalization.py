"""Folding reorders one multiplication per weight: results agree to float32 rounding."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.fold_batch_normalization import FoldBatchNormalizationPass
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from tests.passes.rewrites.applying import add_weights, check, numbers, operators, parse


def build(node: str, shape: str, weight: tuple[int, ...], bias: int | None, attributes: str = "",
          channels: int = 4, output: str = "?,?,?,?") -> ir.Model:  # fmt: skip
    head = f"float[{shape}] x, float[{','.join(map(str, weight))}] w"
    names = "x, w"
    weights = {"w": numbers(*weight)}
    if bias is not None:
        head, names = f"{head}, float[{bias}] c", "x, w, c"
        weights["c"] = numbers(bias, seed=1)
    for index, name in enumerate(("s", "b", "m", "v")):
        head += f", float[{channels}] {name}"
        array = numbers(channels, seed=2 + index)
        weights[name] = array**2 + 0.1 if name == "v" else array
    text = f"""g ({head}) => (float[{output}] y) {{ h = {node}{attributes}({names})
 y = BatchNormalization<epsilon=0.001>(h, s, b, m, v) }}"""
    return add_weights(parse(text), weights)


@pytest.mark.parametrize(
    ("node", "shape", "weight", "bias", "attributes"),
    [
        ("Conv", (2, 3, 8, 8), (4, 3, 3, 3), 4, ""),
        ("Conv", (2, 3, 8, 8), (4, 3, 3, 3), None, ""),
        ("Conv", (2, 4, 8, 8), (4, 1, 3, 3), 4, "<group=4>"),
        ("ConvTranspose", (2, 3, 5, 5), (3, 4, 2, 2), None, "<strides=[2,2]>"),
        ("Gemm", (5, 3), (3, 4), 4, "<alpha=0.5, beta=2.0>"),
        ("Gemm", (5, 3), (4, 3), 1, "<transB=1, beta=0.5>"),
        ("Gemm", (5, 3), (4, 3), None, "<transB=1>"),
    ],
)
def test_folded_into_the_weight(
    node: str, shape: tuple[int, ...], weight: tuple[int, ...], bias: int | None, attributes: str
) -> None:
    rank = ",".join("?" * len(shape))
    model = build(node, ",".join(map(str, shape)), weight, bias, attributes, output=rank)
    check(
        model, FoldBatchNormalizationPass(), inputs=[numbers(*shape, seed=9)],
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip
    assert operators(model) == [node]
    assert model.graph.outputs[0].name == "y"
    used = [value for value in model.graph[0].inputs[1:] if value is not None]
    assert len(used) == 2
    assert all(value.meta[WEIGHT] for value in used)
    assert isinstance(used[0].const_value, ir.LazyTensor)


def test_grouped_transpose_convolutions_stay() -> None:
    model = build("ConvTranspose", "2,4,5,5", (4, 2, 2, 2), None, "<group=2>")
    assert not FoldBatchNormalizationPass()(model).modified


@pytest.mark.parametrize("change", ["second reader", "tied weight", "training", "not constant"])
def test_what_others_need_stays(change: str) -> None:
    model = build("Conv", "2,3,8,8", (4, 3, 3, 3), 4)
    conv, norm = model.graph
    if change == "second reader":
        model.graph.append(ir.node("Relu", [conv.outputs[0]]))
    elif change == "tied weight":
        model.graph.append(ir.node("Relu", [conv.inputs[1]]))
    elif change == "training":
        norm.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
    else:
        scale = model.graph.initializers.pop("s")
        scale.const_value = None
        model.graph.inputs.append(scale)
    assert not FoldBatchNormalizationPass()(model).modified
    assert np.isfinite(numbers(1)).all()
