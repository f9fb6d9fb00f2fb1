"""What float32 leaves open is no fault of a PEF's; 1 % in any layer is, however many digits the model loses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import samba_onnx
from samba_onnx.comparing.element_errors import as_far_as_itself
from samba_onnx.comparing.expectations import ChosenTolerances, Expectation
from samba_onnx.comparing.judge import judge
from samba_onnx.comparing.value_comparison import compare_values
from samba_onnx.comparing.verification import verify
from samba_onnx.runtime.engine.evaluation import open_original
from samba_onnx.runtime.engine.neighbours import moved
from tests.narrow_models import bert, cnn, inputs_of, llama, mlp

LENGTH = 4096
SAYS = "or 5 times as far as the original is from itself in another order of summation"


def losing(*, turned: bool = False, layers: int = 2, fault: int | None = None) -> onnx.ModelProto:
    """Layers that take differences of long sums, of which few digits are left.

    Args:
        turned: Whether all sums are added up backwards, by weights in the opposite order: the same function.
        layers: How many there are.
        fault: The layer whose weights are 1 % larger.
    """
    random = np.random.default_rng(0)
    nodes, tensors, value = [], [], "x"
    gathered = "turned" if turned else "straight"
    for layer in range(layers):
        weight = random.standard_normal((LENGTH, 16)).astype(np.float32)
        near = (weight * (1 + 1e-3 * random.standard_normal((LENGTH, 16)))).astype(np.float32)
        spread = random.standard_normal((16, LENGTH)).astype(np.float32) * 0.25
        if fault == layer:
            weight = (weight * 1.01).astype(np.float32)
        order = np.arange(LENGTH)[::-1] if turned else np.arange(LENGTH)
        tensors += [
            numpy_helper.from_array(np.ascontiguousarray(array), f"{name}{layer}")
            for name, array in (("w", weight[order]), ("v", near[order]), ("s", spread))
        ]
        tensors.append(numpy_helper.from_array(order.copy(), f"o{layer}"))
        nodes += [
            helper.make_node("Gather", [value, f"o{layer}"], [f"{gathered}{layer}"], axis=1),
            helper.make_node("MatMul", [f"{gathered}{layer}", f"w{layer}"], [f"a{layer}"]),
            helper.make_node("MatMul", [f"{gathered}{layer}", f"v{layer}"], [f"b{layer}"]),
            helper.make_node("Sub", [f"a{layer}", f"b{layer}"], [f"d{layer}"]),
            helper.make_node("MatMul", [f"d{layer}", f"s{layer}"], [f"m{layer}"]),
        ]
        value = f"m{layer}"
    nodes[-1] = helper.make_node("Identity", [f"d{layers - 1}"], ["y"])
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, LENGTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


X = np.random.default_rng(1).standard_normal((4, LENGTH)).astype(np.float32)


def in_float64(model: onnx.ModelProto) -> Any:
    """The layers in float64, by numpy."""
    tensors = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer}
    value = X.astype(np.float64)
    for layer in range(2):
        value = value @ (tensors[f"w{layer}"] - tensors[f"v{layer}"])
        if layer < 1:
            value = value @ tensors[f"s{layer}"]
    return value


def test_the_model_loses_more_digits_than_its_type_is_allowed() -> None:
    """Both are right: they are as far from float64 as from each other."""
    models = losing(), losing(turned=True)
    one, other = (open_original(model).run({"x": X})["y"] for model in models)
    (output,) = judge({"y": other}, Expectation({"y": one}), ChosenTolerances())
    assert not output.passed
    exact = in_float64(losing())
    errors = [np.abs(answer - exact).max() / np.abs(exact).max() for answer in (one, other)]
    assert min(errors) > 1e-5
    assert max(errors) < 1e-2


def test_a_right_pef_passes_though_it_adds_up_in_another_order(tmp_path: Path) -> None:
    with samba_onnx.convert(losing(turned=True), tmp_path / "m.pef", sample=False) as pef:
        result = verify(losing(), pef)
        assert [output for output in result.outputs if not output.passed] == []
        assert result.outputs[0].tolerance.endswith(SAYS)
        assert compare_values(losing(), pef).passed
        # Whoever chooses a tolerance gets it.
        assert not verify(losing(), pef, rtol=1e-4, atol=1e-5).passed


@pytest.mark.parametrize("layer", range(2))
def test_one_percent_in_a_layer_of_it_stays_found(layer: int, tmp_path: Path) -> None:
    wrong = losing(turned=True, fault=layer)
    with samba_onnx.convert(wrong, tmp_path / "m.pef", sample=False) as pef:
        assert not verify(losing(), pef).passed
        first = compare_values(losing(), pef).first
        assert first is not None
        assert first.name in (f"a{layer}", f"d{layer}", "y")


def test_the_sample_allows_what_the_original_loses_and_says_so(tmp_path: Path) -> None:
    """Its answers are those of another order than the device's; nothing else can be asked later."""
    with samba_onnx.convert(losing(), tmp_path / "m.pef") as pef:
        sample = pef.manifest.reference
        assert sample is not None
        assert sample.rtol == 1e-4
        assert 1e-5 < sample.atol < 1e-2
        assert any(f"{sample.atol:.2g} of the largest" in note for note in pef.manifest.notes)
        assert samba_onnx.self_test(pef).passed
    with samba_onnx.convert(mlp(), tmp_path / "n.pef") as pef:
        assert pef.manifest.reference is not None
        assert pef.manifest.reference.atol == 1e-5
        assert not any("loses digits" in note for note in pef.manifest.notes)


MODELS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "MLP": mlp,
    "CNN": cnn,
    "BERT": bert,
    "LLaMA": llama,
}


def _weights(model: onnx.ModelProto) -> list[str]:
    return [
        tensor.name
        for tensor in model.graph.initializer
        if tensor.name.startswith("layer") and tensor.name.endswith(".weight")
    ]


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("kind", MODELS)
def test_one_percent_in_any_layer_of_any_model_is_found(kind: str, seed: int) -> None:
    """Whatever the original's own distance from itself allows; its right answers pass."""
    model = MODELS[kind](seed)
    original = open_original(model)
    feeds = inputs_of(model, seed)
    expected = original.run(feeds)
    others = original.run_otherwise(feeds)
    assert len(others) == 3
    expectation = Expectation(expected, again=lambda: others)
    for other in others:
        assert all(o.passed for o in judge(other, expectation, ChosenTolerances()))
    unseen = []
    for name in _weights(model):
        spoiled = onnx.ModelProto()
        spoiled.CopyFrom(model)
        (tensor,) = (each for each in spoiled.graph.initializer if each.name == name)
        changed = numpy_helper.to_array(tensor) * np.float32(1.01)
        tensor.CopyFrom(numpy_helper.from_array(changed, name))
        answer = open_original(spoiled).run(feeds)
        outputs = judge(answer, expectation, ChosenTolerances())
        if all(output.passed for output in outputs):
            unseen.append(name)
    assert unseen == []


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("source", ["quantised by its range", "quantised", "integers"])
def test_sums_of_products_of_integers_may_be_outputs(
    source: str, computed: bool, tmp_path: Path
) -> None:
    """They are floats in the run without rounding, on one side or on both."""
    random = np.random.default_rng(0)
    weight = random.integers(-128, 128, (300, 5)).astype(np.int8)
    head = {
        "quantised by its range": "(float[4,300] x{w}) => (int32[4,5] y, float[4,5] z)"
        " {{ q, s, o = DynamicQuantizeLinear(x)",
        "quantised": "(float[4,300] x{w}) => (int32[4,5] y, float[4,5] z)"
        " {{ s = Constant<value_float=0.02>() o = Constant<value=uint8 {{128}}>()"
        " q = QuantizeLinear(x, s, o)",
        "integers": "(uint8[4,300] q{w}) => (int32[4,5] y, float[4,5] z) {{ o = Constant<value=uint8 {{3}}>()",
    }[source]
    text = head.format(w=", int8[300,5] w" if computed else "")
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g {text}'
        " y = MatMulInteger(q, w, o) f = Cast<to=1>(y) z = Relu(f) }"
    )
    if not computed:
        model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    with samba_onnx.convert(model, tmp_path / "m.pef") as pef:
        for result in (verify(model, pef), samba_onnx.self_test(pef)):
            assert [output for output in result.outputs if not output.passed] == []
            assert any("without rounding" in run for run in result.runs) or source == "integers"


def test_an_error_is_held_against_own_errors_of_its_rank() -> None:
    allowed = np.full(12, 0.5)
    own = np.zeros(12)
    own[[2, 7]] = [10.0, 4.0]  # 20 and 8 times what is allowed
    errors = np.array([99.0, 50, 40, 39, 21, 19, 1, 0, 0, 0, 0, 0])
    wider = as_far_as_itself(errors, allowed, own)
    # Three for each of the original's: 5 * 20 * 0.5 and 5 * 8 * 0.5; the others as their type has it.
    np.testing.assert_array_equal(wider, [50.0] * 3 + [20.0] * 3 + [0.5] * 6)
    shuffled = np.random.default_rng(0).permutation(12)
    again = as_far_as_itself(errors[shuffled], allowed, own)
    np.testing.assert_array_equal(again, wider[shuffled])
    # What is not finite says nothing, and where nothing is allowed nothing is.
    np.testing.assert_array_equal(as_far_as_itself(errors, allowed, np.full(12, np.inf)), allowed)
    nothing = np.zeros(12)
    np.testing.assert_array_equal(as_far_as_itself(errors, nothing, own), nothing)


def test_an_index_may_be_that_of_another_order_and_no_third_one() -> None:
    expected = Expectation({"i": np.array([1, 2])}, again=lambda: [{"i": np.array([1, 5])}])
    for answer, passes in (([1, 2], True), ([1, 5], True), ([1, 4], False), ([5, 2], False)):
        outputs = judge({"i": np.array(answer)}, expected, ChosenTolerances())
        assert [output.passed for output in outputs] == [passes]


def test_the_original_is_asked_again_only_where_something_fails() -> None:
    asked: list[int] = []

    def again() -> list[dict[str, Any]]:
        asked.append(1)
        return []

    right = np.ones(3, np.float32)
    expected = Expectation({"y": right}, again=again)
    judge({"y": right}, expected, ChosenTolerances())
    judge({"y": right * 2}, expected, ChosenTolerances(1e-3))
    assert asked == []
    judge({"y": right * 2}, expected, ChosenTolerances())
    assert asked == [1]


def test_inputs_move_by_a_unit_of_the_last_place_and_whole_numbers_stay() -> None:
    numbers = np.array([0.1, -2.5, 3.0, 0.0, np.inf, np.nan], np.float32)
    feeds = {"x": numbers, "i": np.arange(3), "h": np.float16([0.1]), "s": ["a"]}
    near = moved(feeds, 0)
    assert list(near) == list(feeds)
    assert all(near[name] is feeds[name] for name in "ihs")
    np.testing.assert_array_equal(near["x"][2:], numbers[2:])
    assert near["x"].dtype == np.float32
    ends = [np.nextafter(numbers[:2], np.float32(end)) for end in (-np.inf, np.inf)]
    assert all((near["x"][:2] == ends[0]) | (near["x"][:2] == ends[1]))
    draws = {tuple(moved(feeds, seed)["x"][:2]) for seed in range(20)}
    assert len(draws) == 4  # in every direction
