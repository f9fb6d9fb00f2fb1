"""The pieces of a comparison with a module: whose value it is, what is said of it, who is right."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import fx, nn

from samba_onnx.comparing.eager.captured_graphs import CapturedGraph
from samba_onnx.comparing.expectations import ChosenTolerances, KnownResults
from samba_onnx.comparing.value_statistics import ValueStatistics, value_statistics
from samba_onnx.compiling.torch import module_comparison
from samba_onnx.compiling.torch.module_comparison import (
    JUDGED_BY,
    _base,
    _compare_training,
    _Compared,
    _device_results,
    _distance,
    _judged,
    _Origin,
    _origin,
    _role,
    _TorchValues,
    _within,
    _wrong,
    trains,
)
from samba_onnx.errors import UsageError
from samba_onnx.export.capture.precision import computing_in
from samba_onnx.facts.names import LOSSES
from samba_onnx.facts.precisions import Precision
from samba_onnx.program.kinds import SectionType, SymbolKind

LINE = 'File "mine.py", line 3, in forward\n    return x\n'


def statistics(error: float = 0.0, dtype: Any = np.float32) -> ValueStatistics:
    right = np.array([1.0, 2.0], np.float32).astype(dtype)
    wrong = (right.astype(np.float32) + np.float32(error)).astype(dtype)
    return value_statistics("y", wrong, right, ChosenTolerances(), 1)


def chain() -> tuple[CapturedGraph, Any]:
    """Return x.exp().tanh(), each of which is a layer, and what it was exported to."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    first = graph.call_function(torch.ops.aten.exp.default, (x,))
    second = graph.call_function(torch.ops.aten.tanh.default, (first,))
    graph.output((second,))
    stacks = (("", "Net"), ("a@1", "Exp")), (("", "Net"), ("b", "Block"), ("b.0", "Tanh"))
    for node, stack in zip((first, second), stacks, strict=True):
        node.meta = {
            "nn_module_stack": {str(n): s for n, s in enumerate(stack)},
            "stack_trace": LINE,
        }
    module = fx.GraphModule(nn.Module(), graph)
    exported = SimpleNamespace(values={"in": x, "net__exp": first, "net__tanh": second})
    return CapturedGraph(module, {"x": torch.linspace(-1, 1, 8)}, {}, {}), exported


def values() -> _TorchValues:
    graph, exported = chain()
    return _TorchValues(exported, graph, 2.0**-23)


def test_values_of_operators_have_the_names_of_the_program() -> None:
    torchs, x = values(), np.linspace(-1, 1, 8)
    assert list(torchs.native) == ["net__exp", "net__tanh"]
    assert torchs.exact is not None
    np.testing.assert_allclose(torchs.native["net__tanh"], np.tanh(np.exp(x)), rtol=1e-6)
    assert torchs.exact["net__exp"].dtype == np.float64
    assert torchs.order == {"in": 0, "net__exp": 1, "net__tanh": 2}
    assert torchs.origins["net__exp"] == _Origin("exp", "a@1", "mine.py:3")
    assert torchs.origins["net__tanh"] == _Origin("tanh", "b.0", "mine.py:3")
    assert torchs.origins["in"] == _Origin("x", "", "")


def test_values_move_by_as_many_roundings_as_are_asked_for() -> None:
    graph = fx.Graph()
    one = graph.call_function(torch.ops.aten.mul.Tensor, (graph.placeholder("x"), 1.0))
    graph.output((one,))
    module = fx.GraphModule(nn.Module(), graph)
    x = torch.rand(200) + 0.5
    exported: Any = SimpleNamespace(values={"y": one})
    torchs = _TorchValues(exported, CapturedGraph(module, {"x": x}, {}, {}), 2.0**-23)
    moved = torchs.moved(0, 4)
    assert moved is not None
    distance = np.abs(moved["y"] / x.double().numpy() - 1).max()
    assert 3 * 2.0**-23 < distance <= 4 * 2.0**-23


class Block(nn.Module):
    """Has a layer inside."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.ReLU(), nn.Sequential(nn.Tanh())


def test_what_a_layer_returned_takes_the_place_of_its_last_value() -> None:
    torchs = values()
    exp, tanh = torchs.native["net__exp"], torchs.native["net__tanh"]
    near = {"a": exp * np.float32(1 + 1e-6), "b": tanh + 0, "c": tanh}
    others = [tanh.astype(np.float64), tanh[:3], tanh * 2]
    layers = {"a": [near["a"]], "b.0": [near["b"], *others], "c": [near["c"]]}
    torchs.take_layers(layers, Block())
    assert torchs.native["net__exp"] is near["a"]
    assert torchs.native["net__tanh"] is near["b"]
    assert torchs.origins["net__exp"].path == "a (ReLU)"
    assert torchs.origins["net__tanh"] == _Origin("tanh", "b.0 (Tanh)", "mine.py:3")
    torchs.take_layers({"b": [near["b"]]}, nn.Module())
    assert torchs.origins["net__tanh"].path == "b (layer)"


def test_layers_are_told_by_their_paths() -> None:
    graph, exported = chain()
    first, second = exported.values["net__exp"], exported.values["net__tanh"]
    assert [_within(first, path) for path in ("", "a", "a@1", "1", "b")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert [_within(second, path) for path in ("", "a", "b", "b.0")] == [True, False, True, True]
    bare = graph.module.graph.find_nodes(op="placeholder")[0]
    assert not _within(bare, "")
    assert _origin(bare) == _Origin("x", "", "")


class Torchs:
    """Values of a module, prepared; none in float64 unless they are given."""

    def __init__(self, exact: Any = None) -> None:
        right = np.array([1.0, 2.0], np.float32)
        self.native = {"b": right, "a": right, "gone": right}
        self.origins = {
            "b": _Origin("exp", "first (Exp)", "m.py:1"),
            "a": _Origin("tanh", "", ""),
            "gone": _Origin("relu", "", ""),
        }
        self.order = {"b": 0, "a": 3, "gone": 5}
        self.exact, self.unit = exact, 2.0**-23

    def moved(self, seed: int, amplitude: float) -> None:
        """Torch does not move."""


def test_values_are_told_in_the_order_of_the_module() -> None:
    torchs: Any = Torchs()
    compared = _Compared(torchs)
    right = torchs.native["a"]
    compared.take(7, {"a": right * np.float32(1.5)})
    compared.take(4, {"b": right})
    result = compared.result("main", 6, "on values of its own")
    first, second = result.values
    assert (first.name, first.position, first.node, first.operator) == (
        "b",
        0,
        "first (Exp)",
        "exp",
    )
    assert (first.location, first.stage, first.dtype, first.passed) == (
        "m.py:1",
        4,
        "float32",
        True,
    )
    assert (second.name, second.stage, second.passed, second.operands_agree) == (
        "a",
        7,
        False,
        True,
    )
    assert second.statistics.comparison.tolerance == JUDGED_BY
    assert second.statistics.comparison.mismatched == 2
    assert (result.graph, result.total, result.own, result.feeds) == ("main", 3, 6, {})
    assert result.gone == {"relu": 1}
    assert result.inputs == "the example inputs (on values of its own)"
    assert compared.result("main", 6, "").inputs == "the example inputs"


def test_behind_a_wrong_value_operands_do_not_agree() -> None:
    torchs: Any = Torchs()
    compared = _Compared(torchs)
    compared.take(1, {name: array * np.float32(1.5) for name, array in torchs.native.items()})
    assert [value.operands_agree for value in compared.result("g", 0, "").values] == [
        True,
        False,
        False,
    ]


def test_what_is_right_in_float64_is_right_after_all() -> None:
    torchs: Any = Torchs({"a": np.array([1.5, 3.0])})
    torchs.native = {"a": torchs.native["a"]}
    compared = _Compared(torchs)
    compared.take(1, {"a": np.array([1.5, 3.0], np.float32)})
    (value,) = compared.result("g", 0, "").values
    assert value.passed
    assert value.statistics.comparison.mismatched == 0


def test_in_another_precision_distances_are_those_from_float32() -> None:
    exact = {"a": np.array([1.25, 2.0])}
    torchs: Any = Torchs(exact)
    right = torchs.native["a"]
    for precision, error in ((Precision.FP32, 0.0), (Precision.BF16, 0.25)):
        with computing_in(precision):
            compared = _Compared(torchs)
        compared.take(1, {"a": right, "b": right})
        shown = {v.name: v.statistics.comparison for v in compared.result("g", 0, "").values}
        assert shown["a"].max_absolute_error == error
        assert shown["b"].max_absolute_error == 0.0


def test_nothing_to_compare_is_refused() -> None:
    torchs: Any = Torchs()
    with pytest.raises(
        UsageError, match=r"^the PEF has no value of the module: compare takes what"
    ):
        _Compared(torchs).result("g", 0, "")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_distance_keeps_the_verdict(dtype: Any) -> None:
    own = statistics(dtype=dtype)
    actual, exact = np.array([1.0, 2.0], dtype), np.array([1.5, 2.0])
    shown = _distance("y", actual, exact, own)
    assert shown.comparison.max_absolute_error == 0.5
    assert (shown.comparison.passed, shown.comparison.tolerance) == (True, own.comparison.tolerance)
    assert shown.comparison.of_allowed > 0
    coarse = value_statistics(
        "y", actual.astype(np.float32), exact.astype(np.float32), ChosenTolerances(), 1, 8.0
    )
    assert shown.comparison.of_allowed == coarse.comparison.of_allowed
    for kept in (
        _distance("y", actual.astype(np.int64), exact, own),
        _distance("y", actual, np.array([1, 2]), own),
    ):
        assert kept is own


def test_a_verdict_takes_the_place_of_the_plain_tolerance() -> None:
    own = statistics(0.5)
    assert not own.comparison.passed
    assert _judged(own, False, False) is own
    wrong = _judged(own, True, True)
    assert wrong.comparison == dataclasses.replace(
        own.comparison, passed=False, tolerance=JUDGED_BY
    )
    right = _judged(own, True, False).comparison
    assert (right.passed, right.mismatched, right.tolerance) == (True, 0, JUDGED_BY)


def test_only_what_is_doubtful_is_judged() -> None:
    right = np.ones(2, np.float32)
    torchs = KnownResults({"a": right, "b": right}, 2.0**-23)
    assert _wrong({}, None) == frozenset()
    assert _wrong({"a": right * 2, "b": right}, torchs) == {"a"}


def test_names_and_roles_of_results() -> None:
    assert [_base(n) for n in ("w__grad", "w__updated", "w", "__grad__w")] == [
        "w",
        "w",
        "w",
        "__grad__w",
    ]
    assert [_role(n) for n in ("w__grad", "w__updated", "y")] == ["gradient", "new value", "output"]


def test_a_pef_with_a_backward_trains() -> None:
    def pef(*types: SectionType) -> Any:
        sections = [SimpleNamespace(type=one) for one in types]
        return SimpleNamespace(manifest=SimpleNamespace(sections=sections))

    assert trains(pef(SectionType.FWD, SectionType.BCKWD))
    assert not trains(pef(SectionType.FWD))


class Device:
    """Notes what it is given, and returns what it was told to."""

    def __init__(self, pef: Any, *, threads: int | None) -> None:
        self.threads, self.written, self.loaded = threads, {}, {}
        DEVICES.append(self)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def load(self, arrays: Any) -> None:
        self.loaded = arrays

    def write(self, name: str, array: Any) -> None:
        self.written[name] = array

    def run(self, inputs: Any, *, section_types: Any, argins: Any) -> Any:
        self.asked = (inputs, section_types, argins)
        return {"loss": np.float32(3.0)}

    def read(self, name: str) -> Any:
        return f"content of {name}"


DEVICES: list[Device] = []


def test_a_training_step_starts_with_ones_for_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    def symbol(name: str, kind: SymbolKind, element: str = "float") -> Any:
        return SimpleNamespace(name=name, kind=kind, shape=(2, "n"), type=f"tensor({element})")

    symbols = [
        symbol("w", SymbolKind.WEIGHT),
        symbol("w__grad", SymbolKind.GRADIENT, "float16"),
        symbol("loss__grad", SymbolKind.GRADIENT),
        symbol("elsewhere__grad", SymbolKind.GRADIENT),
        symbol("loss", SymbolKind.OUTPUT),
    ]
    residents = {"w": None, "w__grad": None, "loss__grad": None}
    pef: Any = SimpleNamespace(
        manifest=SimpleNamespace(symbols=symbols, residents=lambda: residents)
    )
    graph: Any = SimpleNamespace(inputs=("x", "rate"))
    program = SimpleNamespace(
        argins=(SimpleNamespace(name="rate"),), metadata={LOSSES: json.dumps(["loss"])}
    )
    exported: Any = SimpleNamespace(program=program, members={"w": "w", "v": "v"}, inputs={"x": 0})
    runs: Any = SimpleNamespace(
        module=None, leaves=[], native=dict.fromkeys(["loss", "w__grad", "gone"])
    )
    feeds = {"x": np.ones(3), "w": np.ones(2, np.float16), "v": np.ones(1), "rate": np.zeros(())}
    monkeypatch.setattr(module_comparison, "Device", Device)
    monkeypatch.setattr(module_comparison, "feeds_of", lambda *_: feeds)
    results = _device_results(pef, graph, exported, runs, 3)
    device = DEVICES.pop()
    assert results == {"loss": 3.0, "w__grad": "content of w__grad"}
    assert device.threads == 3
    assert list(device.loaded) == ["w"]
    written = {name: (a.tolist(), a.dtype) for name, a in device.written.items()}
    assert written == {
        "w__grad": ([0.0, 0.0], np.float16),
        "loss__grad": ([1.0, 1.0], np.float32),
    }
    inputs, types, argins = device.asked
    assert list(inputs) == ["x"]
    assert types == {"FWD", "BCKWD"}
    assert argins == {"rate": 0}


def test_a_training_step_is_told_by_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = SimpleNamespace(module="the module", args=("x",), keywords={})
    pef: Any = SimpleNamespace(
        manifest=SimpleNamespace(stages=lambda: {5: SimpleNamespace(id=5, outputs=("loss",))})
    )
    graph: Any = SimpleNamespace(name="step")
    exported = SimpleNamespace(members={"m__w": "w"})
    right = np.array([1.0, 2.0], np.float32)
    native = {"loss": right, "m__w__grad": right, "m__v__updated": right, "lost__grad": right}
    runs = SimpleNamespace(native=native, exact=None, unit=2.0**-23, moved=lambda *_: None)
    fitting = SimpleNamespace(runs=runs, condition="")
    asked: dict[str, Any] = {}

    def noted(name: str, answer: Any) -> None:
        def call(*arguments: Any, **options: Any) -> Any:
            asked[name] = (arguments, options)
            return answer

        monkeypatch.setattr(module_comparison, name, call)

    actual = {"loss": right, "m__w__grad": right * np.float32(1.5), "m__v__updated": right}
    noted("named_inputs", "named")
    noted("read_records", {"step": SimpleNamespace(loss_indices=[1])})
    noted("attached_losses", "losses")
    noted("export_training", exported)
    noted("fitting_runs", fitting)
    noted("_device_results", actual)
    result = _compare_training(model, pef, graph, 2)
    assert asked["named_inputs"] == (("the module", ("x",)), {})
    assert asked["attached_losses"] == (("the module", [1]), {})
    assert asked["export_training"] == (
        ("the module", "named"),
        {"loss_indices": "losses", "name": "step"},
    )
    assert asked["fitting_runs"] == (("the module", ("x",), {}, exported), {"trains": True})
    assert asked["_device_results"] == ((pef, graph, exported, runs, 2), {})
    shown = [(v.name, v.position, v.node, v.operator, v.stage, v.passed) for v in result.values]
    assert shown == [
        ("loss", 0, "", "output", 5, True),
        ("m__w__grad", 1, "w", "gradient", 0, False),
        ("m__v__updated", 2, "", "new value", 0, True),
    ]
    assert {(v.dtype, v.location, v.operands_agree) for v in result.values} == {
        ("float32", "", True)
    }
    assert result.values[0].statistics.comparison.tolerance != JUDGED_BY
    assert result.values[1].statistics.comparison.tolerance == JUDGED_BY
    assert (result.total, result.gone, result.own) == (4, {"gradient": 1}, 0)
    assert result.inputs == "the example inputs"
    fitting.condition = "on values of its own for 'x'"
    model.keywords = {"x": 1}
    noted("read_records", {})
    changed = _compare_training(model, pef, graph, None)
    assert changed.inputs == "the example inputs (on values of its own for 'x')"
    assert asked["named_inputs"] == (("the module", {"x": 1}), {})
    assert asked["attached_losses"] == (("the module", None), {})
    noted("_device_results", {})
    with pytest.raises(
        UsageError, match=r"^the PEF has no value of the module: compare takes what it was made of$"
    ):
        _compare_training(model, pef, graph, None)
