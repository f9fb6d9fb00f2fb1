"""Every value beside the original's: the right ones agree, a wrong one is found where it begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import samba_onnx
from samba_onnx.comparing.value_comparison import compare_values
from samba_onnx.comparing.verification import verify
from samba_onnx.errors import UsageError
from samba_onnx.passes import order, pipeline
from samba_onnx.pef import Pef, load_pef
from tests.comparing.broken_passes import BROKEN, NET

Convert = Callable[..., Pef]


def net(path: Path) -> Path:
    """Write a model with weights and operators that broken passes can spoil."""
    model = onnx.parser.parse_model(NET)
    generator = np.random.default_rng(0)
    arrays = {
        "w": generator.standard_normal((8, 4), np.float32),
        "bias": generator.standard_normal(4, np.float32),
        "two": np.array([2.0], np.float32),
    }
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return net(tmp_path / "net.onnx")


def with_pass(monkeypatch: pytest.MonkeyPatch, broken: type) -> None:
    """Put a pass behind those that prepare a model for running."""
    entries = (*order.RUNNING, order.PassEntry(lambda context: broken()))
    monkeypatch.setattr(pipeline, "RUNNING", entries)


def test_all_values_of_a_right_pef_agree_and_the_others_are_counted(
    model: Path, tmp_path: Path
) -> None:
    with samba_onnx.convert(
        model, tmp_path / "net.pef", dims={"n": 3}, level="o0", sample=False, trial=False
    ) as pef:
        assert len(pef.manifest.sections) > 5  # values cross many sections
        done: list[tuple[float, float]] = []
        looks: list[tuple[str, bool]] = []
        result = compare_values(
            model,
            pef,
            progress=lambda *count: done.append(count),
            look=lambda value, content: looks.append((value.name, content is not None)),
        )
        written = sum(
            len(
                {name for node in pef.stage_model(stage).graph.node for name in node.output if name}
            )
            for stage in pef.manifest.stages()
        )
    assert result.passed
    assert result.first is None
    names = [value.name for value in result.values]
    assert names == [name for name in "abcdefghiyjz" if name in names]
    assert set(names) >= set("acdefgiyz")
    assert sorted(looks) == [(name, True) for name in sorted(names)]
    assert result.own == written - len(names)
    assert result.total == 13
    assert sum(result.gone.values()) == result.total - len(names)
    assert result.gone["Identity"] == 1
    assert done[-1] == (len(pef.manifest.sections), len(pef.manifest.sections))
    assert all(value.statistics.cosine is not None for value in result.values)
    assert all(value.operands_agree for value in result.values)
    assert {value.dtype for value in result.values} == {"float32"}


def test_values_of_one_section_are_judged_in_the_order_in_which_they_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their names are in another one."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    net (float[4, 8] x, int64[8] i) => (float[4, 8] a, int64[8] k) {
        r = Relu(x) q = Tanh(r) p = Exp(q) a = Neg(p) k = Abs(i) }"""
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    with_pass(monkeypatch, BROKEN["Tanh"])
    with samba_onnx.convert(path, tmp_path / "net.pef", sample=False) as pef:
        result = compare_values(path, pef)
    assert [value.name for value in result.values if value.name in "rqpa"] == list("rqpa")
    agree = {value.name: (value.passed, value.operands_agree) for value in result.values}
    assert agree == {
        "r": (True, True),
        "q": (False, True),
        "p": (False, False),
        "a": (False, False),
        "k": (True, True),
    }
    assert {value.name for value in result.values if value.dtype == "int64"} == {"k"}


@pytest.mark.parametrize("operator", BROKEN)
def test_a_wrong_value_is_found_where_it_begins(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    with_pass(monkeypatch, BROKEN[operator])
    with samba_onnx.convert(
        model, tmp_path / "net.pef", dims={"n": 3}, sample=False, trial=False
    ) as pef:
        result = compare_values(model, pef)
        outputs = {output.name: output for output in verify(model, pef).outputs}
    first = result.first
    assert first is not None
    begins = {"Tanh": "d", "Softmax": "g", "MatMul": "b", "Sub": "f"}[operator]
    # A product and the sum behind it may be one operator of the PEF.
    assert first.name in (begins, "c" if operator == "MatMul" else begins)
    assert first.operands_agree
    later = [value for value in result.values if value.name in "gy" and value.name >= first.name]
    assert not any(value.passed for value in later)
    assert not any(value.operands_agree for value in later[1:])
    assert {value.name for value in result.values if value.passed} >= {"a", "z"}
    # What it says of outputs is what a verification says.
    for value in result.values:
        if value.name in outputs:
            assert value.passed == outputs[value.name].passed


def test_statistics_are_numpys(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_pass(monkeypatch, BROKEN["Tanh"])
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)
    with samba_onnx.convert(
        model, tmp_path / "net.pef", dims={"n": 3}, sample=False, trial=False
    ) as pef:
        result = compare_values(model, pef, inputs={"x": x})
    proto = onnx.load(model)
    proto.graph.output.extend([onnx.ValueInfoProto(name="c"), onnx.ValueInfoProto(name="d")])
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    c, d = (np.asarray(array, np.float64) for array in session.run(["c", "d"], {"x": x}))
    wrong = 1 / (1 + np.exp(-c))
    statistics = next(value.statistics for value in result.values if value.name == "d")
    error = np.abs(wrong - d)
    cosine = (wrong * d).sum() / np.linalg.norm(wrong) / np.linalg.norm(d)
    # float32 rounds in the sixth to seventh digit.
    assert statistics.comparison.max_absolute_error == pytest.approx(error.max(), rel=1e-5)
    assert statistics.mean_absolute_error == pytest.approx(error.mean(), rel=1e-5)
    assert statistics.cosine == pytest.approx(cosine, rel=1e-5)
    assert result.inputs == "the inputs given"


def test_parts_on_the_cpu_sequences_and_constants_are_compared(tmp_path: Path) -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[4, 4] x) => (float[4, 4] y, float[2] k, int64[2, m] p)
    <float[2] one = {1, 2}, int64 i = {1}> {
        a = Relu(x)
        s = SplitToSequence<axis = 0>(a)
        t = SequenceAt(s, i)
        b = Add(a, t)
        p = NonZero(b)
        y = Tanh(b)
        k = Add(one, one)
    }
    """
    model = tmp_path / "g.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    with samba_onnx.convert(model, tmp_path / "g.pef", sample=False, trial=False) as pef:
        assert pef.manifest.fallbacks
        result = compare_values(model, pef)
    assert result.passed
    values = {value.name: value for value in result.values}
    assert values.keys() >= {"a", "b", "p", "y", "k"}
    assert values["p"].statistics.comparison.tolerance == "equal"
    dtypes = {"a": "float32", "b": "float32", "p": "int64"}
    assert {name: values[name].dtype for name in dtypes} == dtypes


def test_weights_beside_the_model_and_halves(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float16[2, 64] x) => (float16[2, 64] y) { a = MatMul(x, w) b = Relu(a) y = Tanh(b) }
        """
    )
    w = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float16) / np.float16(8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    path = tmp_path / "g.onnx"
    onnx.save(model, path, save_as_external_data=True, location="g.data", size_threshold=0)
    with samba_onnx.convert(path, tmp_path / "g.pef", sample=False, trial=False) as pef:
        result = compare_values(path, pef)
    assert result.passed
    assert [value.name for value in result.values] == ["a", "b", "y"]


def test_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    other = onnx.load(model)
    for node in other.graph.node:
        node.output[:] = [f"{name}_other" for name in node.output]
        node.input[:] = [
            name if name in ("x", "w", "bias", "two") else f"{name}_other" for name in node.input
        ]
    with samba_onnx.convert(model, tmp_path / "net.pef", sample=False, trial=False) as pef:
        for value in other.graph.output:
            value.name += "_other"
        with pytest.raises(UsageError, match="compare takes the model that the PEF was converted"):
            compare_values(other, pef)


def test_graphs_of_several_sizes_are_chosen_by_their_inputs(model: Path, tmp_path: Path) -> None:
    samba_onnx.convert(
        model, tmp_path / "net.pef", dims={"n": (2, 5)}, sample=False, trial=False
    ).close()
    x = np.ones((5, 8), np.float32)
    with load_pef(tmp_path / "net.pef") as pef:
        result = compare_values(model, pef, inputs={"x": x})
        assert result.graph == pef.manifest.graphs[1].name
        outputs = {v.name: v.statistics.comparison.shape for v in result.values}
    assert result.passed
    assert outputs["y"] == (5, 4)


def test_what_is_folded_together_is_compared_as_what_it_became(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[1, 2, 6, 6] x) => (float[1, 3, 4, 4] y) {
            a = Conv(x, w) b = BatchNormalization(a, s, o, m, v) y = Relu(b)
        }
        """
    )
    generator = np.random.default_rng(2)
    arrays = {name: generator.random(3, np.float32) + 0.5 for name in "somv"}
    arrays["w"] = generator.standard_normal((3, 2, 3, 3), np.float32)
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    with samba_onnx.convert(model, tmp_path / "g.pef", sample=False, trial=False) as pef:
        result = compare_values(model, pef)
    assert result.passed
    assert [value.name for value in result.values] == ["b", "y"]
    assert result.gone == {"Conv": 1}


def test_shapes_that_a_model_states_for_other_sizes_do_no_harm(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n, 4] x) => (float[n, 4] y) <float[7, 4] a, float[7, 4] b>
        { a = Relu(x) b = Exp(a) c = NonZero(b) d = Cast<to = 1>(c) e = ReduceSum<keepdims = 0>(d)
          f = Mul(b, e) y = Neg(f) }
        """
    )
    with samba_onnx.convert(
        model, tmp_path / "g.pef", dims={"n": 3}, level="o0", sample=False, trial=False
    ) as pef:
        result = compare_values(model, pef)
    assert result.passed
    assert len(result.values) >= 5


def quantised(path: Path, factor: float = 1.0) -> Path:
    """Write a model that quantises a product to eight bits, whose weight may be too large."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[8,64] x) => (float[8,32] y, uint8[8,32] q) <float s = {0.05}, uint8 z = {128}> {
            m = MatMul(x, w) q = QuantizeLinear(m, s, z) y = DequantizeLinear(q, s, z) }"""
    )
    weight = 0.2 * np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(factor * weight, "w"))
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_quantised_numbers_may_be_a_step_off_where_the_device_computes_in_bfloat16(
    tmp_path: Path, factor: float
) -> None:
    """Integers had to be equal, of which a rounding of bfloat16 makes the next one."""
    right, other = quantised(tmp_path / "q.onnx"), quantised(tmp_path / "o.onnx", factor)
    with samba_onnx.convert(
        right, tmp_path / "q.pef", precision="bf16", sample=False, trial=False
    ) as pef:
        compared = {value.name: value for value in compare_values(other, pef).values}
    step = compared["q"].statistics.comparison
    assert (step.type, step.passed) == ("uint8", factor == 1)
    assert step.max_absolute_error >= 1
    assert "from zero" in step.tolerance
