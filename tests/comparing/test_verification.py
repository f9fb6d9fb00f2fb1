"""Verification sees what is wrong: in any row of a table, in any type, on any way to run a PEF."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import samba_onnx
from samba_onnx.comparing import element_errors, reference_sample
from samba_onnx.comparing.sample_inputs import input_specs, random_inputs
from samba_onnx.comparing.verification import compare, run_original, verify
from samba_onnx.errors import UsageError
from samba_onnx.facts.tolerances import OUTPUT, Tolerance, output_roundings
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine import evaluation, steps
from samba_onnx.runtime.engine.onnxruntime.engine import OnnxRuntimeEngine
from samba_onnx.runtime.engine.protocol import Engine, EngineSettings
from samba_onnx.runtime.engine.registry import ENGINES, make_engine

FLOATS = [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16]
ROWS = 1000


def tensor(name: str, element: int, array: np.ndarray) -> onnx.TensorProto:
    return helper.make_tensor(name, element, array.shape, array.reshape(-1))


def network(
    element: int = TensorProto.FLOAT,
    change: Callable[[np.ndarray], object] = lambda table: None,
    factor: float = 1.0,
) -> onnx.ModelProto:
    """Embedding, mask, product and softmax.

    Args:
        element: Type of all floats.
        change: What is done to the table of 1,000 rows.
        factor: What the weight of the product is multiplied by.
    """
    generator = np.random.default_rng(0)
    table = generator.standard_normal((ROWS, 16)).astype(np.float32)
    change(table)
    weight = factor * generator.standard_normal((16, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["rows"]),
        helper.make_node("Add", ["rows", "x"], ["sum"]),
        helper.make_node("MatMul", ["sum", "w"], ["product"]),
        helper.make_node("Where", ["mask", "product", "low"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, [4, 6]),
            helper.make_tensor_value_info("x", element, [4, 6, 16]),
            helper.make_tensor_value_info("mask", TensorProto.BOOL, [4, 6, 8]),
        ],
        [
            helper.make_tensor_value_info("y", element, [4, 6, 8]),
            helper.make_tensor_value_info("product", element, [4, 6, 8]),
        ],
        [
            tensor("table", element, table),
            tensor("w", element, weight),
            tensor("low", element, np.asarray(-1e4, np.float32)),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture(scope="module", params=FLOATS, ids=["float32", "float16", "bfloat16"])
def compiled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, Path]:
    """A type, and the PEF of the network in it."""
    path = tmp_path_factory.mktemp("verified") / "m.pef"
    samba_onnx.convert(network(request.param), path).close()
    return request.param, path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[samba_onnx.Pef]:
    """The PEF of the network in float32."""
    path = tmp_path_factory.mktemp("plain") / "m.pef"
    with samba_onnx.convert(network(), path) as pef:
        yield pef


def test_a_pef_agrees_with_its_model_in_every_float(compiled: tuple[int, Path]) -> None:
    element, path = compiled
    result = verify(network(element), path)
    assert (result.passed, result.against) == (True, "original")
    ways = ["weights mapped", "weights prepacked"]
    if element == TensorProto.FLOAT16:  # of bfloat16 constants are rounded when they are folded
        ways.append("in float32 without rounding")
    assert result.runs == tuple(f"seed {seed}, {way}" for way in ways for seed in (0, 1, 2))
    own = samba_onnx.self_test(path)
    assert own.passed
    assert len(own.runs) == len(result.runs)
    against_float32 = [output.tolerance.endswith("against float32") for output in own.outputs]
    assert against_float32 == [element != TensorProto.FLOAT] * 2
    if element != TensorProto.FLOAT:  # an addition, a product and a softmax
        for output in result.outputs:
            assert output.tolerance.startswith(f"{output_roundings(3):.3g} roundings")
        casts = 2 * (element == TensorProto.FLOAT16)  # the device computes it in float32
        for output in own.outputs:
            assert output.tolerance.startswith(f"{output_roundings(3 + casts):.3g} roundings")


def zero_all_but_two(table: np.ndarray) -> None:
    table[2:] = 0


def zero_the_last(table: np.ndarray) -> None:
    table[-1] = 0


def zero_the_first(table: np.ndarray) -> None:
    table[0] = 0


def scale(table: np.ndarray) -> None:
    table *= 1.25


@pytest.mark.parametrize("change", [zero_all_but_two, zero_the_last, zero_the_first, scale])
def test_a_table_that_differs_is_seen(
    compiled: tuple[int, Path], change: Callable[[np.ndarray], None]
) -> None:
    element, path = compiled
    assert not verify(network(element, change), path).passed


@pytest.mark.parametrize(
    ("element", "factor"),
    [(TensorProto.FLOAT, 1.001), (TensorProto.FLOAT16, 1.03), (TensorProto.BFLOAT16, 1.2)],
)
def test_weights_that_are_a_little_larger_are_seen(
    element: int, factor: float, tmp_path: Path
) -> None:
    with samba_onnx.convert(
        network(element, factor=factor), tmp_path / "m.pef", sample=False, trial=False
    ) as pef:
        result = verify(network(element), pef)
        assert [output.passed for output in result.outputs][1] is False


Outputs = dict[str, Any]
BROKEN: dict[str, Callable[[Outputs], Outputs]] = {
    "NaN": lambda outputs: outputs | {"y": np.full_like(outputs["y"], np.nan)},
    "other dtype": lambda outputs: outputs | {"y": outputs["y"].astype(np.float64)},
    "other shape": lambda outputs: outputs | {"y": outputs["y"][None]},
    "nothing": lambda outputs: outputs | {"y": None},
    "objects": lambda outputs: outputs | {"y": outputs["y"].astype(object)},
    "beyond the tolerance": lambda outputs: outputs | {"product": outputs["product"] * 1.0005},
}
RUNS = [(False, 0), (False, 2), (True, 0), (True, 2)]


@pytest.mark.parametrize(
    ("fault", "when"),
    [*(("beyond the tolerance", run) for run in RUNS), *((fault, (True, 1)) for fault in BROKEN)],
)
def test_a_fault_in_any_run_is_seen(
    fault: str, when: tuple[bool, int], plain: samba_onnx.Pef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapped or prepacked, in the first run or in one that is replayed: each counts."""
    wrong, runs = _device_with(BROKEN[fault], when)
    monkeypatch.setattr("samba_onnx.runtime.parallel_device.Device", wrong)
    weights = "prepacked" if when[0] else "mapped"
    for result in (verify(network(), plain), samba_onnx.self_test(plain)):
        failed = [output for output in result.outputs if not output.passed]
        assert len(failed) == 1
        assert {output.run for output in failed} == {
            run for run in result.runs if run.endswith(weights) and str(when[1]) in run
        }
    assert runs == [(way, run) for way in (False, True) for run in (0, 1, 2)] * 2


def _device_with(
    broken: Callable[[Outputs], Outputs], when: tuple[bool, int]
) -> tuple[type[Device], list[tuple[bool, int]]]:
    """Return a device one run of which is broken, and a list that its runs are noted in."""
    runs: list[tuple[bool, int]] = []

    class Broken(Device):
        def __init__(self, pef: samba_onnx.Pef, *, prepack: bool, **options: Any) -> None:
            super().__init__(pef, prepack=prepack, **options)
            self._prepack, self._number = prepack, 0

        def run(self, inputs: Mapping[str, Any] | None = None, *_: Any, **__: Any) -> Outputs:
            outputs = super().run(inputs)
            place = (self._prepack, self._number)
            runs.append(place)
            self._number += 1
            return broken(outputs) if place == when else outputs

    return Broken, runs


def test_kernels_that_fail_only_on_packed_weights_are_seen(
    plain: samba_onnx.Pef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if packing gave wrong numbers: verification runs the device as users run it."""
    bind = OnnxRuntimeEngine.bind

    def bind_wrongly(self: OnnxRuntimeEngine, computation: Any, *rest: Any) -> Any:
        if self._settings.prepack:
            for node in computation.model.graph.node:
                if node.op_type == "Add":
                    node.op_type = "Sub"
        return bind(self, computation, *rest)

    monkeypatch.setattr(OnnxRuntimeEngine, "bind", bind_wrongly)
    for result in (verify(network(), plain), samba_onnx.self_test(plain)):
        assert not result.passed
        assert all(output.run.endswith("prepacked") for output in result.outputs)


def test_inputs_that_are_given_are_the_only_ones(plain: samba_onnx.Pef) -> None:
    given = {
        "i": np.zeros((4, 6), np.int64),
        "x": np.ones((4, 6, 16), np.float32),
        "mask": np.ones((4, 6, 8), np.bool_),
    }
    assert verify(network(change=zero_the_last), plain, inputs=given).passed
    result = verify(network(change=zero_the_first), plain, inputs=given)
    assert not result.passed
    assert {output.run.split(", ")[0] for output in result.outputs} == {"the inputs given"}


def test_tolerances_that_are_given_replace_those_of_the_type(plain: samba_onnx.Pef) -> None:
    other = network(factor=1.01)
    assert not verify(other, plain).passed
    loose = verify(other, plain, rtol=0.5, atol=0.5)
    assert loose.passed
    assert (loose.rtol, loose.atol) == (0.5, 0.5)
    assert loose.outputs[0].tolerance == "0.5 of each element + 0.5 of the largest"


def test_a_sample_is_compared_by_its_own_tolerances_or_those_of_the_user(
    plain: samba_onnx.Pef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = samba_onnx.self_test(plain)
    assert (own.rtol, own.atol) == (OUTPUT.relative, OUTPUT.absolute)
    for place in (reference_sample, element_errors):
        monkeypatch.setattr(place, "OUTPUT", Tolerance(0.5, 0.25))
    with samba_onnx.convert(network(), tmp_path / "m.pef") as pef:
        loose = samba_onnx.self_test(pef)
        assert (loose.rtol, loose.atol) == (0.5, 0.25)
    exact = samba_onnx.self_test(plain, rtol=0.25, atol=0.125)
    assert (exact.rtol, exact.atol, exact.against) == (0.25, 0.125, "sample")


def test_random_inputs_begin_at_the_seed_that_is_given(plain: samba_onnx.Pef) -> None:
    names = [run.partition(",")[0] for run in verify(network(), plain, seed=5).runs]
    assert names == ["seed 5", "seed 6", "seed 7"] * 2


def test_the_model_of_another_pef_is_refused_by_the_names_of_its_outputs(
    plain: samba_onnx.Pef,
) -> None:
    other = network()
    other.graph.output.pop()
    with pytest.raises(UsageError, match=r"outputs \['y', 'product'\], the model has \['y'\]"):
        verify(other, plain)


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_and_engine_are_those_of_both_sides(
    engine: str, plain: samba_onnx.Pef, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, int | None]] = []

    def note(name: str, settings: EngineSettings) -> Engine:
        made.append((name, settings.threads))
        return make_engine(name, settings)

    for module in (steps, evaluation):
        monkeypatch.setattr(module, "make_engine", note)
    ways = 2 if engine == "onnxruntime" else 1  # to keep weights
    runs = verify(network(), plain, engine=engine, threads=1).runs
    assert len(runs) == 3 * ways
    assert all(run.endswith("weights mapped") for run in runs[:3])
    assert made == [(engine, 1)] * (1 + ways)
    assert samba_onnx.self_test(plain, engine=engine, threads=1).engine == engine
    assert made == [(engine, 1)] * (1 + 2 * ways)
    inputs = random_inputs(input_specs(plain), 0)
    assert list(run_original(network(), inputs, engine=engine, threads=1)) == ["y", "product"]
    assert made == [(engine, 1)] * (2 + 2 * ways)


def test_outputs_of_any_origin_can_be_compared() -> None:
    ones = np.ones(3, np.float32)
    same = compare({"y": ones, "z": ones}, {"y": ones, "z": ones}, against="torch")
    assert (same.passed, same.against, same.runs) == (True, "torch", ())
    assert (same.rtol, same.atol) == (OUTPUT.relative, OUTPUT.absolute)
    near = {"y": ones, "z": ones * 1.01}
    assert not compare(near, {"y": ones, "z": ones}, against="torch").passed
    for options in ({"rtol": 0.1}, {"atol": 0.1}, {"rtol": 0.1, "atol": 0.2}):
        loose = compare(near, {"y": ones, "z": ones}, against="torch", **options)
        assert loose.passed
        wanted = (options.get("rtol", OUTPUT.relative), options.get("atol", OUTPUT.absolute))
        assert (loose.rtol, loose.atol) == wanted


@pytest.mark.parametrize("element", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_convolutions_of_16_bits_have_a_sample_and_agree(element: int, tmp_path: Path) -> None:
    """Of opset 22, which allows bfloat16 for them; onnxruntime has no such kernel."""
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", element, [2, 3, 8, 8])],
        [helper.make_tensor_value_info("y", element, [2, 4, 6, 6])],
        [tensor("w", element, weight)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    with samba_onnx.convert(tmp_path / "m.onnx", tmp_path / "m.pef") as pef:
        assert pef.manifest.reference is not None
        assert pef.manifest.reference.wide == ("y",)
        assert samba_onnx.self_test(pef).passed
        for engine in ("onnxruntime", "reference"):
            assert verify(tmp_path / "m.onnx", pef, engine=engine).passed


def test_a_bfloat16_model_with_external_weights_is_verified(tmp_path: Path) -> None:
    model = network(TensorProto.BFLOAT16)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    with samba_onnx.convert(path, tmp_path / "m.pef") as pef:
        assert pef.manifest.reference is not None
        assert pef.manifest.reference.wide == ("y", "product")
        result = verify(path, pef)
        assert result.passed
        assert "against float32" in result.outputs[0].tolerance
