"""A PEF of an ONNX model appears only if it computes what the model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from samba_onnx.comparing.outcome import ComparisonOutcome, NotComparableError
from samba_onnx.compiling import compared_conversion as original
from samba_onnx.compiling.compared_conversion import (
    _named,
    _original_outputs,
    _refusal,
    _sizes,
    _trials,
    convert_compared,
)
from samba_onnx.errors import EngineRefusalError, ExecutionError, ExportMismatchError
from samba_onnx.loading import load_model
from samba_onnx.pef import load_pef
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine.onnxruntime.engine import OnnxRuntimeEngine

X = np.array([[1.0, -2.0]], np.float32)
HEADER = '<ir_version: 10, opset_import: ["": 21, "acme": 1]> g (float[1, 2] x) => (float[1, 2] y) '
TRACE = 'File "mine.py", line 7, in forward\n    y = strange(x)\n'


def model(body: str) -> onnx.ModelProto:
    """Return a model whose nodes come from line 7 of ``mine.py``."""
    proto = onnx.parser.parse_model(f"{HEADER}{{ {body} }}")
    for number, node in enumerate(proto.graph.node):
        node.name = f"node_{number}"
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=TRACE)
    return proto


def notes(path: Path) -> tuple[str, ...]:
    with load_pef(path) as pef:
        return pef.manifest.notes


def test_agreeing_models_appear_with_their_log(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "m.pef"
    comparison = convert_compared(model("y = Tanh(x)"), path, {"x": X}, sample=False)
    assert comparison.outcome is ComparisonOutcome.DONE
    assert list(comparison.errors) == ["y"]
    assert notes(path) == ()
    assert sorted(p.name for p in path.parent.iterdir()) == ["m.pef", "m.pef.log"]
    with load_pef(path) as pef:
        assert pef.manifest.reference is None
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]


def test_random_models_are_not_comparable(tmp_path: Path) -> None:
    path = tmp_path / "m.pef"
    body = "noise = RandomNormalLike(x) \n y = Add(x, noise)"
    comparison = convert_compared(model(body), path, {"x": X}, sample=False)
    assert comparison.outcome is ComparisonOutcome.NOT_COMPARABLE
    note = (
        "What was compiled is not compared with the ONNX model on onnxruntime: RandomNormalLike "
        "draws other numbers in every run."
    )
    assert comparison.notes == (note,)
    assert note in notes(path)


def test_dropouts_are_random_only_in_training(tmp_path: Path) -> None:
    path = tmp_path / "m.pef"
    still = convert_compared(model("y = Dropout(x)"), path, {"x": X}, sample=False)
    assert still.outcome is ComparisonOutcome.DONE
    body = "r = Constant<value = float {0.5}>() \n t = Constant<value = bool {1}>()"
    moving = convert_compared(model(f"{body} \n y = Dropout(x, r, t)"), path, {}, sample=False)
    assert moving.reason == "Dropout draws other numbers in every run"


def test_inputs_that_the_model_refuses_are_not_comparable(tmp_path: Path) -> None:
    path = tmp_path / "m.pef"
    body = (
        "i = Cast<to = 7>(x) \n rows = Gather(x, i) \n axis = Constant<value_ints = [1]>() \n"
        "y = ReduceSum<keepdims = 0>(rows, axis)"
    )
    comparison = convert_compared(model(body), path, {"x": X + 5}, sample=False)
    assert "onnxruntime fails on the given inputs: Gather node" in comparison.reason
    assert comparison.notes[0] in notes(path)


def test_inputs_without_values_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "m.pef"
    comparison = convert_compared(model("y = Tanh(x)"), path, {}, "an input has no values")
    assert comparison.outcome is ComparisonOutcome.DONE
    assert comparison.notes == (
        "What was compiled is compared with the ONNX model on onnxruntime on values of its own for "
        "'x'.",
    )
    assert comparison.notes[0] in notes(path)


@pytest.mark.parametrize("value", [7, -4, 1 << 40])
def test_indices_of_no_table_are_drawn(tmp_path: Path, value: int) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[3, 2] t, int64[4] i) => (float[4, 2] y) '
        "{ y = Gather(t, i) }"
    )
    given = {"t": np.ones((3, 2), np.float32), "i": np.full(4, value)}
    comparison = convert_compared(onnx.parser.parse_model(text), tmp_path / "m.pef", given)
    assert comparison.outcome is ComparisonOutcome.DONE
    assert "on values of its own for 'i'" in comparison.notes[0]


@pytest.mark.parametrize("missing", ["", "an input has no values"])
def test_a_refused_operator_is_named_with_its_line(tmp_path: Path, missing: str) -> None:
    strange = model("z = Tanh(x) \n y = acme.Swirl(z)")
    where = r"^the ONNX model cannot be run: .* operator acme::Swirl at mine\.py:7;"
    with pytest.raises(EngineRefusalError, match=where) as caught:
        convert_compared(strange, tmp_path / "m.pef", {"x": X}, missing, sample=False)
    assert (caught.value.operator, caught.value.location) == ("acme::Swirl", "mine.py:7")
    assert (caught.value.node, caught.value.section_type) == ("node_1", "FWD")
    assert list(tmp_path.iterdir()) == []


def broken(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> None:
    def run(self: Device, inputs: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(Device, "run", run)


def test_other_numbers_leave_all_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.pef"
    broken(monkeypatch, {"y": np.sin(X)})
    with pytest.raises(ExportMismatchError, match=r"than the ONNX model, for outputs \['y'\]"):
        convert_compared(model("y = Tanh(x)"), tmp_path / "deep" / "m.pef", {"x": X}, sample=False)
    assert list(tmp_path.iterdir()) == []
    path.write_text("the last one")
    with pytest.raises(ExportMismatchError):
        convert_compared(model("y = Tanh(x)"), path, {"x": X}, sample=False)
    assert path.read_text() == "the last one"
    assert [p.name for p in tmp_path.iterdir()] == ["m.pef"]


def test_a_refused_stage_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "Tanh node 'node_0': no kernel"
    broken(monkeypatch, ExecutionError(f"section 0 cannot be prepared: {reason}", reason=reason))
    with pytest.raises(EngineRefusalError, match=r"compiled model .* Tanh at mine\.py:7;"):
        convert_compared(model("y = Tanh(x)"), tmp_path / "m.pef", {"x": X}, sample=False)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_comparable_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: OnnxRuntimeEngine, *_: Any) -> Any:
        raise ExecutionError("section 0 cannot be prepared", reason="Tanh node 'node_0': no kernel")

    monkeypatch.setattr(OnnxRuntimeEngine, "bind", refuse)
    with pytest.raises(EngineRefusalError, match=r"compiled model .* Tanh at mine\.py:7;"):
        convert_compared(model("y = Tanh(x)"), tmp_path / "m.pef", {}, "no values", sample=False)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_of_the_whole_names_no_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, ExecutionError("memory ran out"))
    with pytest.raises(EngineRefusalError, match=r"no single operator.*memory ran out") as caught:
        convert_compared(model("y = Tanh(x)"), tmp_path / "m.pef", {"x": X}, sample=False)
    assert (caught.value.operator, caught.value.location) == (None, None)


SIZED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[1000, 2] t, int64[n, 3] i) => (float[n, 3, 2] y) { y = Gather(t, i) }"""


@pytest.mark.parametrize("random", [False, True])
def test_options_reach_the_conversion(random: bool, tmp_path: Path) -> None:
    text = SIZED.replace("y = Gather", "n = RandomNormalLike(t) s = Add(n, t) y = Gather") if random else SIZED  # fmt: skip
    shapes = {"i": [4, 3]}
    comparison = convert_compared(
        onnx.parser.parse_model(text), tmp_path / "m.pef", {}, "no values", input_shapes=shapes
    )
    assert (comparison.outcome is ComparisonOutcome.DONE) != random
    with load_pef(tmp_path / "m.pef") as pef:
        symbols = {symbol.name: symbol.shape for symbol in pef.manifest.symbols}
        assert tuple(symbols["y"] or ()) == (4, 3, 2)


def test_what_is_rounded_more_coarsely_may_be_off_by_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, asked = original.compare, []

    def compare(*args: Any, **options: Any) -> Any:
        asked.append(options)
        return right(*args, **options)

    monkeypatch.setattr(original, "compare", compare)
    monkeypatch.setattr(original, "coarseness", lambda pef, graph: 8.0)
    convert_compared(model("y = Tanh(x)"), tmp_path / "m.pef", {"x": X}, sample=False)
    assert asked == [{"against": "original", "coarser": 8.0}]


def test_all_random_operators_are_named() -> None:
    proto = model("a = RandomUniformLike(x) b = RandomNormalLike(x) y = Add(a, b)")
    text = "RandomNormalLike, RandomUniformLike draws other numbers in every run"
    with pytest.raises(NotComparableError, match=f"^{text}$"):
        _original_outputs(proto, load_model(proto), {"x": X}, "", {})


def test_without_anything_to_run_on_the_reason_is_that_of_the_caller() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (seq(float[2]) s, int64 i) => (float[2] y) { y = SequenceAt(s, i) }"""
    proto = onnx.parser.parse_model(text)
    with pytest.raises(NotComparableError, match=r"^nobody gave any$"):
        _original_outputs(proto, load_model(proto), {}, "nobody gave any", {})


def test_integers_of_its_own_have_the_ranges_of_the_graph() -> None:
    graph = ir.from_proto(onnx.parser.parse_model(SIZED))
    ((drawn, names),) = _trials(graph, {}, "no values", {"i": [50, 3]})
    assert names == ("t", "i")
    assert drawn["i"].shape == (50, 3)
    assert drawn["i"].max() > 500
    value = graph.graph.inputs[1]
    assert _sizes(value, {}, {}) == [1, 3]
    assert _sizes(value, {}, {"i": [4, "n"]}) == [4, 1]
    assert _sizes(value, {"i": np.zeros((7, 3))}, {"i": [4, 3]}) == [7, 3]


def test_a_refusal_names_what_can_be_told() -> None:
    proto = model("z = Tanh(x) \n y = Tanh(z)")
    loaded = load_model(proto)
    for node in loaded.model.graph:
        node.metadata_props.clear()
    named = _refusal(loaded, ExecutionError("no", reason="bad node_1 here"), "the thing")
    assert str(named) == (
        "the thing cannot be run: the engine refuses operator Tanh, node 'node_1'; write that operator "
        "in another way. The engine's own words: bad node_1 here"
    )
    assert (named.node, named.location, named.reason) == ("node_1", None, "bad node_1 here")
    loaded.model.graph[0].name = None
    unnamed = _refusal(loaded, ExecutionError("no", reason="Tanh is bad"), "the thing")
    assert "operator Tanh, node '';" in str(unnamed)
    nothing = _refusal(loaded, ExecutionError("memory ran out"), "the thing")
    assert str(nothing).startswith(
        "the thing cannot be run: the engine refuses no single operator of it; write"
    )
    assert (nothing.reason, nothing.section_type) == ("memory ran out", "FWD")


def test_names_are_told_before_operators() -> None:
    graph = ir.from_proto(model("z = Tanh(x) \n a = Exp(z) \n y = Tanh(a)"))
    graph.graph[2].name = "/layer.1/Tanh"
    assert _named(graph, "Tanh node '/layer.1/Tanh' failed") is graph.graph[2]
    assert _named(graph, "in Exp: no") is graph.graph[1]
    assert _named(graph, "Tan: no") is None
