"""A training step in two parts, cut: weights are inputs that stay on the device, and so is what an optimizer keeps.

Held against numpy in float64, where sums in another order differ by less than 1e-12.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from samba_onnx.facts.names import GRADIENT
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.sharding.cuts import Cut
from samba_onnx.passes.sharding.sharded_programs import cut_inputs, cut_part
from samba_onnx.program.kinds import SymbolKind
from tests.passes.sharding.executed import CutModel
from tests.passes.sharding.models import Writer

ROWS, WIDTH, INNER = 4, 8, 16
DOUBLE = onnx.TensorProto.DOUBLE
WEIGHTS = {"up": (WIDTH, INNER), "down": (INNER, WIDTH)}
RESIDENTS = dict.fromkeys(WEIGHTS, SymbolKind.WEIGHT)
KEPT = {f"{name}_kept": SymbolKind.BUFFER for name in WEIGHTS}
NEW = {f"{name}_new": name for name in (*WEIGHTS, *KEPT)}


def gradients() -> onnx.ModelProto:
    """Two layers with a tanh between them, half the sum of squares, and the gradients of both weights."""
    writer = Writer(0, np.float64)
    middle = writer.node("Tanh", writer.node("MatMul", "x", "up"))
    result = writer.node("MatMul", middle, "down")
    slope = writer.node("Sub", writer.constant(np.float64(1)), writer.node("Mul", middle, middle))
    back = writer.node("MatMul", result, writer.node("Transpose", "down", perm=[1, 0]))
    inner = writer.node("Mul", back, slope)
    outputs = {"up": writer.node("MatMul", writer.node("Transpose", "x"), inner)}
    outputs["down"] = writer.node("MatMul", writer.node("Transpose", middle), result)
    for name, value in outputs.items():
        writer.nodes.append(onnx.helper.make_node("Identity", [value], [f"{name}{GRADIENT}"]))
    inputs = {"x": (ROWS, WIDTH), **WEIGHTS}
    return writer.model(
        {f"{name}{GRADIENT}": shape for name, shape in WEIGHTS.items()} | {result: (ROWS, WIDTH)},
        {name: (DOUBLE, shape) for name, shape in inputs.items()},
    )


def update() -> onnx.ModelProto:
    """What is kept becomes 0.9 of itself and the gradient; a weight loses a tenth of that."""
    writer = Writer(0, np.float64)
    share, rate = (writer.constant(np.float64(number)) for number in (0.9, 0.1))
    for name in WEIGHTS:
        old = writer.node("Mul", f"{name}_kept", share)
        new = writer.node("Add", old, f"{name}{GRADIENT}")
        writer.nodes.append(onnx.helper.make_node("Identity", [new], [f"{name}_kept_new"]))
        step = writer.node("Mul", rate, new)
        writer.nodes.append(onnx.helper.make_node("Sub", [name, step], [f"{name}_new"]))
    inputs = {
        name + suffix: (DOUBLE, shape)
        for name, shape in WEIGHTS.items()
        for suffix in ("", "_kept", GRADIENT)
    }
    outputs = {
        name + suffix: shape for name, shape in WEIGHTS.items() for suffix in ("_new", "_kept_new")
    }
    return writer.model(outputs, inputs)


def cut(proto: onnx.ModelProto, whole: Cut) -> CutModel:
    """Cut one part of the program."""
    model = ir.from_proto(proto)
    InferShapesPass()(model)
    if whole.mode == "batch" and not whole.regions:
        cut_inputs(model, whole, ["x"], {})
    cut_part(model, whole, {**RESIDENTS, **KEPT}, NEW)
    return CutModel(model, whole, tuple(value.name or "" for value in model.graph.outputs))


@pytest.mark.parametrize("rdus", [2, 4])
@pytest.mark.parametrize("mode", ["weight", "batch"])
def test_a_step_computes_what_one_rdu_does(mode: str, rdus: int) -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((ROWS, WIDTH))
    weights = {name: draw.standard_normal(shape) / 4 for name, shape in WEIGHTS.items()}
    kept = {f"{name}_kept": draw.standard_normal(shape) for name, shape in WEIGHTS.items()}
    whole = Cut(rdus, mode)
    first, second = cut(gradients(), whole), cut(update(), whole)

    given = first.run({"x": x, **weights})
    middle = np.tanh(x @ weights["up"])
    result = middle @ weights["down"]
    slopes = {
        "up": x.T @ ((result @ weights["down"].T) * (1 - middle**2)),
        "down": middle.T @ result,
    }
    for name, slope in slopes.items():
        np.testing.assert_allclose(given[f"{name}{GRADIENT}"], slope, rtol=1e-11, atol=1e-12)
    after = second.run({**weights, **kept, **{f"{n}{GRADIENT}": s for n, s in slopes.items()}})
    for name, slope in slopes.items():
        moment = 0.9 * kept[f"{name}_kept"] + slope
        np.testing.assert_allclose(after[f"{name}_kept_new"], moment, rtol=1e-12)
        np.testing.assert_allclose(after[f"{name}_new"], weights[name] - 0.1 * moment, rtol=1e-12)


def test_what_an_optimizer_keeps_is_cut_as_its_weight_is() -> None:
    whole = Cut(2, "weight")
    first, second = cut(gradients(), whole), cut(update(), whole)
    axes = {"up": (1,), "down": (0,)}
    for name, expected in axes.items():
        for region in (name, f"{name}_kept"):
            assert tuple(split.axis for split in whole.regions[region].axes) == expected
        assert first.sharded()[f"{name}{GRADIENT}"] == expected
        assert second.sharded()[f"{name}_new"] == expected
        assert second.sharded()[f"{name}_kept_new"] == expected
    assert (first.collectives, second.collectives) == (1, 0)
    assert whole.reasons == {}


def test_a_batch_needs_the_sum_of_each_gradient() -> None:
    whole = Cut(2, "batch")
    first, second = cut(gradients(), whole), cut(update(), whole)
    assert set(first.sharded()) == {"x", first.outputs[-1]}
    assert (first.collectives, second.collectives) == (2, 0)
    assert not any(whole.regions[name].axes for name in (*WEIGHTS, *KEPT))
