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


def test_what_is_computed_has_the_name_of_the_normalisation() -> None:
    weights = {name: numbers(4, seed=i) ** 2 + 0.1 for i, name in enumerate("sbmv")}
    model = add_weights(
        parse(
            """g (float[2,3,8,8] x, float[4,3,3,3] w, float[4] s, float[4] b, float[4] m,
            float[4] v) => (float[2,4,6,6] y) {
            h = Conv(x, w) n = BatchNormalization(h, s, b, m, v) y = Relu(n) }"""
        ),
        {"w": numbers(4, 3, 3, 3), **weights},
    )
    inputs = [numbers(2, 3, 8, 8, seed=9)]
    check(model, FoldBatchNormalizationPass(), inputs=inputs, rtol=1e-4, atol=1e-5)
    assert operators(model) == ["Conv", "Relu"]
    # Under its own name the convolution would be taken for what it was.
    assert [value.name for node in model.graph for value in node.outputs] == ["n", "y"]


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


def normalized(
    kind: str, channels: int, attributes: str = "", bias: str = "", **weights: np.ndarray
) -> ir.Model:
    """Return a Gemm of two inputs and some channels with a normalization behind it."""
    names = ["w", *(["c"] if bias else []), "s", "b", "m", "v"]
    shapes = {"w": f"2,{channels}", "c": bias, **dict.fromkeys("sbmv", str(channels))}
    head = ", ".join(f"{kind}[{shapes[name]}] {name}" for name in names)
    call = "Gemm(x, w, c)" if bias else "Gemm(x, w)"
    model = parse(
        f"g ({kind}[n,2] x, {head}) => ({kind}[n,{channels}] y) "
        f"{{ h = {call}\n y = BatchNormalization{attributes}(h, s, b, m, v) }}"
    )
    dtype = ir.DataType[kind.upper()].numpy()
    defaults = {
        name: numbers(*map(int, shapes[name].split(",")), seed=place)
        for place, name in enumerate(names)
    }
    defaults["v"] = defaults["v"] ** 2 + 0.1
    arrays = {name: weights.get(name, array).astype(dtype) for name, array in defaults.items()}
    return add_weights(model, arrays)


def test_without_epsilon_the_standard_s_is_added() -> None:
    model = normalized("double", 3, v=np.array([1e-5, 1e-6, 0]))  # an attribute is a float32
    check(model, FoldBatchNormalizationPass(), inputs=[numbers(4, 2).astype(float)], rtol=1e-6)
    assert operators(model) == ["Gemm"]


@pytest.mark.parametrize(("kind", "rtol"), [("double", 1e-12), ("float16", 2e-2)])
def test_weights_keep_their_type_and_its_precision(kind: str, rtol: float) -> None:
    model = normalized(kind, 3, bias="3")
    dtype = ir.DataType[kind.upper()].numpy()
    check(
        model, FoldBatchNormalizationPass(), inputs=[numbers(4, 2).astype(dtype)],
        rtol=rtol, atol=rtol,
    )  # fmt: skip
    assert {value.const_value.numpy().dtype for value in model.graph.initializers.values() if value.name and "normalized" in value.name and value.const_value is not None} == {np.dtype(dtype)}  # fmt: skip


@pytest.mark.parametrize("kind", ["float", "float16"])
def test_a_weight_is_multiplied_in_single_precision_and_rounded_once(kind: str) -> None:
    model = normalized(kind, 1000)
    given = {name: value.const_value.numpy().astype(np.float32) for name, value in model.graph.initializers.items() if value.const_value is not None}  # fmt: skip
    FoldBatchNormalizationPass()(model)
    folded = model.graph.initializers["w_normalized"].const_value
    assert folded is not None
    factor = given["s"].astype(float) / np.sqrt(given["v"].astype(float) + 1e-5)
    expected = (given["w"] * factor.astype(np.float32)).astype(folded.dtype.numpy())
    np.testing.assert_array_equal(folded.numpy(), expected)


def test_one_that_stays_does_not_hide_that_another_was_folded() -> None:
    model = parse("""g (float[n,2] x, float[2,3] w, float[3] s) => (float[n,3] y) {
 h = Gemm(x, w)
 a = BatchNormalization(h, s, s, s, s)
 b = Relu(a)
 y = BatchNormalization(b, s, s, s, s) }""")
    add_weights(model, {"w": numbers(2, 3), "s": np.array([1, 2, 3], np.float32)})
    check(model, FoldBatchNormalizationPass(), inputs=[numbers(4, 2)], rtol=1e-4, atol=1e-5)
    assert operators(model) == ["Gemm", "Relu", "BatchNormalization"]


def test_new_weights_are_named_after_the_old_ones() -> None:
    for bias, name in (("3", "c_normalized"), ("", "w_bias_normalized")):
        model = normalized("float", 3, bias=bias)
        FoldBatchNormalizationPass()(model)
        weights = [value.name for value in model.graph[0].inputs[1:] if value is not None]
        assert weights == ["w_normalized", name]


@pytest.mark.parametrize(
    ("bias", "folds"), [("3", True), ("1", True), ("1,3", True), ("1,1", True), ("3,1", False)]
)
def test_a_bias_per_channel_is_folded_and_one_per_row_is_not(bias: str, folds: bool) -> None:
    model = normalized("float", 3, bias=bias)
    check(
        model, FoldBatchNormalizationPass(), inputs=[numbers(3, 2)],
        rtol=1e-4, atol=1e-5, modified=folds,
    )  # fmt: skip


def test_many_channels_are_folded() -> None:
    channels = 5000
    model = normalized("float", channels, bias=str(channels))
    check(model, FoldBatchNormalizationPass(), inputs=[numbers(3, 2)], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("variance", "reason"),
    [([1, -1, 1], "not finite"), ([1, np.nan, 1], "not finite"), ([1, np.inf, 1], None)],
)
def test_statistics_that_give_no_numbers_stay(variance: list[float], reason: str | None) -> None:
    model = normalized("float", 3, v=np.array(variance))
    rewrite = FoldBatchNormalizationPass()
    assert rewrite(model).modified == (reason is None)
    assert [reason in line for line in rewrite.refusals.lines() if reason] == [True] * bool(reason)


def test_statistics_that_are_read_mean_training() -> None:
    model = normalized("float", 3)
    norm = model.graph[1]
    norm.resize_outputs(3)
    norm.outputs[1].name, norm.outputs[2].name = "mean", "variance"
    model.graph.append(ir.node("Neg", [norm.outputs[1]]))
    assert not FoldBatchNormalizationPass()(model).modified
    model = normalized("float", 3)
    norm = model.graph[1]
    norm.resize_outputs(2)
    norm.outputs[1].name = "mean"
    model.graph.outputs.append(norm.outputs[1])
    assert not FoldBatchNormalizationPass()(model).modified


def test_a_weight_whose_channels_are_elsewhere_stays() -> None:
    model = normalized("float", 3)
    model.graph[0].attributes["transB"] = ir.AttrInt64("transB", 1)
    rewrite = FoldBatchNormalizationPass()
    assert not rewrite(model).modified
    assert "its channels are no axis of the weight" in rewrite.refusals.lines()[0]


@pytest.mark.parametrize(
    ("operator", "weight"), [("Conv", ()), ("ConvTranspose", (4,)), ("Gemm", (4,))]
)
def test_a_weight_of_too_few_axes_stays(operator: str, weight: tuple[int, ...]) -> None:
    """Nobody can run it; to say so is not for this pass."""
    model = build(operator, "2,4", weight, None)
    assert not FoldBatchNormalizationPass()(model).modified
