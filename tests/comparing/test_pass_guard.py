"""``--check-passes``: a pass that changes numbers is named, with the least that shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import samba_onnx
from samba_onnx.comparing import pass_guard
from samba_onnx.comparing.pass_guard import PassGuard
from samba_onnx.comparing.reduction import Reduction
from samba_onnx.comparing.sample_inputs import random_inputs
from samba_onnx.errors import PassMismatchError, UsageError
from samba_onnx.passes import order, pipeline
from samba_onnx.passes.watching import PassStep
from tests.comparing.broken_passes import BROKEN, UnrunnablePass
from tests.comparing.test_value_comparison import net, with_pass


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return net(tmp_path / "net.onnx")


def check(model: Path, **options: object) -> tuple[str, ...]:
    path = model.with_suffix(".pef")
    with samba_onnx.convert(
        model, path, check_passes=True, sample=False, trial=False, **options
    ) as pef:
        return pef.manifest.notes


def test_right_passes_pass_and_the_report_says_how_many(model: Path) -> None:
    notes = check(model, dims={"n": 3})
    (said,) = [note for note in notes if "computed the same" in note]
    count = int(said.split()[3])
    manifest = samba_onnx.analyze(model, dims={"n": 3})
    assert count == sum(one.modified for one in manifest.passes)
    plain = samba_onnx.convert(model, model.with_suffix(".pef"), sample=False, trial=False)
    assert not any("computed the same" in note for note in plain.manifest.notes)
    plain.close()


@pytest.mark.parametrize("operator", BROKEN)
def test_the_guilty_pass_is_named_with_the_one_node_that_shows_it(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    with_pass(monkeypatch, BROKEN[operator])
    with pytest.raises(PassMismatchError, match="changed what the model computes") as caught:
        check(model, dims={"n": 3})
    name = BROKEN[operator].__name__.removesuffix("Pass")
    assert caught.value.passes == (name,)
    assert f"pass {name} changed" in str(caught.value)
    assert not model.with_suffix(".pef").exists()
    reduction = caught.value.reduction
    assert isinstance(reduction, Reduction)
    # Gemm is what the product and the sum behind it are by then; no broken pass looks for it.
    assert [node.op_type for node in reduction.model.graph.node] == [operator]
    assert_shows(reduction, tmp_path, BROKEN[operator])


def assert_shows(reduction: Reduction, folder: Path, broken: type) -> None:
    """What was written runs on onnxruntime, gives what it says, and the pass spoils it."""
    path, inputs = reduction.write(folder / "bug")
    onnx.checker.check_model(onnx.load(path), full_check=True)
    arrays = np.load(inputs)
    feeds = {name: arrays[name] for name in arrays.files if "/" not in name}
    session = onnxruntime.InferenceSession(path)
    names = [value.name for value in session.get_outputs()]
    for name, array in zip(names, session.run(names, feeds), strict=True):
        np.testing.assert_array_equal(array, arrays[f"expected/{name}"])
    spoiled = ir.load(path)
    broken()(spoiled)
    after = onnxruntime.InferenceSession(ir.to_proto(spoiled).SerializeToString())
    for name, array in zip(names, after.run(names, feeds), strict=True):
        np.testing.assert_array_equal(array, arrays[f"actual/{name}"])
        assert not np.allclose(array, arrays[f"expected/{name}"], rtol=1e-4, atol=1e-5)


def test_a_pass_that_leaves_what_no_engine_runs_is_guilty(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_pass(monkeypatch, UnrunnablePass)
    with pytest.raises(PassMismatchError, match="Unrunnable") as caught:
        check(model, dims={"n": 3})
    reduction = caught.value.reduction
    assert reduction.actual is None
    assert [node.op_type for node in reduction.model.graph.node] == ["Transpose"]


def test_a_pass_among_others_is_found(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = list(order.RUNNING)
    entries.insert(len(entries) // 2, order.PassEntry(lambda context: BROKEN["Sub"]()))
    monkeypatch.setattr(pipeline, "RUNNING", tuple(entries))
    with pytest.raises(PassMismatchError) as caught:
        check(model)
    assert caught.value.passes == ("OtherOperands",)


def test_a_model_of_random_numbers_cannot_be_checked(tmp_path: Path) -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[2] x) => (float[2] y) { r = RandomNormalLike(x) y = Add(x, r) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "g.onnx")
    with pytest.raises(UsageError, match="RandomNormalLike draws other numbers in every run"):
        check(tmp_path / "g.onnx")


CHAIN = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[n, 4] x) => (float[n, 4] y) { a = Relu(x) b = Tanh(a) y = Neg(b) }
"""


def _chain(text: str = CHAIN, n: int = 2) -> ir.Model:
    model = ir.from_onnx_text(text)
    for value in model.graph.inputs:
        value.shape = ir.Shape([n if size == "n" else size for size in value.shape or ()])
    return model


class Rename(ir.passes.InPlacePass):
    """Puts one operator in the place of another."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__()
        self.old, self.new = old, new

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        nodes = [node for node in model.graph if node.op_type == self.old]
        for node in nodes:
            node.op_type = self.new
        return ir.passes.PassResult(model, modified=bool(nodes))


def _step(model: ir.Model, old: str, new: str, *, binds_later: bool = False) -> PassStep:
    Rename(old, new)(model)
    return PassStep(f"{old}To{new}", model, lambda: Rename(old, new), binds_later)


def test_what_is_off_is_said_in_numbers() -> None:
    model = _chain()
    guard = PassGuard(model)
    with pytest.raises(PassMismatchError) as caught:
        guard.see(_step(model, "Tanh", "Erf"))
    assert caught.value.passes == ("TanhToErf",)
    assert re.fullmatch(
        r"pass TanhToErf changed what the model computes: [1-8] of 8 elements of output 'y' are off, by "
        r"up to 0\.\d+ of the largest; 1 of its 3 nodes show it; please report this model",
        str(caught.value),
    )
    reduction = caught.value.reduction
    assert reduction.inputs.keys() == {"a"}
    x = random_inputs({"x": ("tensor(float)", (2, 4))}, 0)["x"]
    np.testing.assert_array_equal(reduction.inputs["a"], np.maximum(x, 0))


def test_the_seed_chooses_the_inputs() -> None:
    model = _chain()
    guard = PassGuard(model, seed=5)
    with pytest.raises(PassMismatchError) as caught:
        guard.see(_step(model, "Relu", "Neg"))
    x = random_inputs({"x": ("tensor(float)", (2, 4))}, 5)["x"]
    np.testing.assert_array_equal(caught.value.reduction.inputs["x"], x)


def test_passes_before_sizes_are_known_are_checked_with_the_next_one() -> None:
    model = _chain()
    guard = PassGuard(model)
    guard.see(_step(model, "Relu", "Relu", binds_later=True))
    assert guard.finish() == ()
    guard.see(_step(model, "Tanh", "Tanh"))
    assert guard.finish() == (
        "After each of 2 passes that changed it, the model computed the same.",
    )
    model = _chain()
    guard = PassGuard(model)
    guard.see(_step(model, "Relu", "Abs", binds_later=True))
    with pytest.raises(PassMismatchError) as caught:
        guard.see(_step(model, "Neg", "Neg"))
    assert caught.value.passes == ("ReluToAbs", "NegToNeg")
    assert "one of the passes ReluToAbs, NegToNeg changed" in str(caught.value)
    one = PassGuard(_chain())
    one.see(_step(_chain(), "Neg", "Neg"))
    assert one.finish() == ("After each of 1 pass that changed it, the model computed the same.",)


def test_what_cannot_run_between_two_passes_is_compared_after_the_next() -> None:
    model = _chain()
    guard = PassGuard(model)
    guard.see(_step(model, "Tanh", "NoSuchOperator"))
    guard.see(_step(model, "NoSuchOperator", "Tanh"))
    assert "2 passes" in guard.finish()[0]
    guard.see(_step(model, "Tanh", "NoSuchOperator"))
    guard.see(_step(model, "Relu", "NorThisOne"))
    with pytest.raises(PassMismatchError) as caught:
        guard.finish()
    assert caught.value.passes == ("TanhToNoSuchOperator", "ReluToNorThisOne")
    # The first refusal is what is said.
    assert "computes: the engine refuses it: " in str(caught.value)
    assert "the model between two passes" not in str(caught.value)
    assert "NoSuchOperator" in str(caught.value).partition("refuses it: ")[2].partition(";")[0]


def test_a_model_that_runs_on_no_inputs_cannot_be_checked() -> None:
    model = ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 21, "com.example" : 1]>
        g (float[2] x) => (float[2] y) { y = com.example.Own(x) }
        """
    )
    guard = PassGuard(model)
    with pytest.raises(
        UsageError, match=r"passes cannot be checked on this model: it cannot be run: .*Own"
    ):
        guard.see(PassStep("Any", model, lambda: Rename("a", "b"), False))


def test_every_operator_that_draws_numbers_is_named() -> None:
    model = ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y)
        { b = RandomUniformLike(x) a = RandomNormalLike(x) y = Add(a, b) }
        """
    )
    with pytest.raises(UsageError, match=r"model: RandomNormalLike, RandomUniformLike draws"):
        PassGuard(model)


@pytest.mark.parametrize("most", [0, 15, 16, 1 << 16])
def test_large_weights_are_fed(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a weight is fed or stays inside changes nothing, defaults of inputs and texts included."""
    monkeypatch.setattr(pass_guard, "FED_BYTES", most)
    model = ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 4] x, float[4] d) => (float[2, 4] y, bool[2] t)
        <float[4] w = {1, 2, 3, 4}, float[4] d = {4, 3, 2, 1}> {
            a = Add(x, w) b = Mul(a, d) y = Tanh(b)
            s = Constant <value_strings = ["a", "b"]> ()
            t = Equal(s, s)
        }
        """
    )
    guard = PassGuard(model)
    guard.see(PassStep("Nothing", model, lambda: Rename("a", "b"), False))
    with pytest.raises(PassMismatchError, match="of output 'y' are off"):
        guard.see(_step(model, "Tanh", "Erf"))
    assert model.graph.initializers.keys() >= {"w"}


def _looked_up(rows: int = 10) -> ir.Model:
    model = ir.from_onnx_text(
        f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (int64[64] i, float[{rows}, 2] w) => (float[64, 2] y) {{ y = Gather(w, i) }}
        """
    )
    value = model.graph.inputs.pop()
    value.const_value = ir.tensor(
        np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2), name="w"
    )
    model.graph.register_initializer(value)
    return model


def _with_rows(model: ir.Model, first: int) -> PassStep:
    """Return a step that changed all rows of a table from one on, and does nothing when it is asked again."""
    weight = model.graph.initializers["w"]
    assert weight.const_value is not None
    rows = weight.const_value.numpy().copy()
    rows[first:] += 1
    weight.const_value = ir.tensor(rows, name="w")
    return PassStep("Table", model, lambda: Rename("a", "b"), False)


def test_rows_of_a_table_are_all_looked_up_and_a_fault_may_be_of_no_part() -> None:
    model = _looked_up()
    guard = PassGuard(model)
    with pytest.raises(PassMismatchError, match=r"largest; no part of it alone shows it; please"):
        guard.see(_with_rows(model, 3))


def test_where_those_fail_the_first_two_rows_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(specs: Any, seed: int, ranges: Any = None) -> dict[str, Any]:
        return random_inputs(specs, seed, ranges) if ranges is None else {"i": np.full(64, 99)}

    monkeypatch.setattr(pass_guard, "random_inputs", chosen)
    model = _looked_up()
    guard = PassGuard(model)
    guard.see(_with_rows(model, 2))
    assert guard.finish()
    with pytest.raises(PassMismatchError):
        guard.see(_with_rows(model, 1))


def test_a_model_that_fails_when_it_runs_is_refused_by_the_reason() -> None:
    model = _looked_up()
    guard = PassGuard(model)
    guard.see(_with_rows(model, 10))
    guard.see(_with_rows(model, 10))
    assert "each of 2 passes" in guard.finish()[0]
    weight = model.graph.initializers["w"]
    weight.const_value = ir.tensor(np.zeros((1, 2), np.float32), name="w")
    weight.shape = ir.Shape([1, 2])
    guard.see(PassStep("Table", model, lambda: Rename("a", "b"), False))
    with pytest.raises(PassMismatchError, match="the engine refuses it: ") as caught:
        guard.finish()
    reason = str(caught.value).partition("refuses it: ")[2]
    assert "out of data bounds" in reason
    assert "the model" not in reason.partition(";")[0]


def test_halves_of_a_deep_model_may_be_off_by_its_roundings() -> None:
    chain = " ".join(f"h{n + 1} = Mul(h{n}, k)" for n in range(300))
    for depth, passes in ((300, True), (1, False)):
        text = chain.split(" h")[0] if depth == 1 else chain
        model = ir.from_onnx_text(
            f"""
            <ir_version: 10, opset_import: ["" : 21]>
            g (float16[4] h0, float16[1] k, float16[1] w) => (float16[4] y)
            {{ {text} y = Mul(h{depth}, w) }}"""
        )
        for name in "wk":
            value = next(value for value in model.graph.inputs if value.name == name)
            model.graph.inputs.remove(value)
            value.const_value = ir.tensor(np.ones(1, np.float16), name=name)
            model.graph.register_initializer(value)
        guard = PassGuard(model)
        # 0.7 %: some fourteen roundings to 11 bits.
        model.graph.initializers["w"].const_value = ir.tensor(
            np.full(1, 1.007, np.float16), name="w"
        )
        step = PassStep("Scale", model, lambda: Rename("a", "b"), False)
        if passes:
            guard.see(step)
        else:
            with pytest.raises(PassMismatchError):
                guard.see(step)


@pytest.mark.parametrize("name", ["ReducePrecision", "FoldConstants"])
def test_what_reduces_precision_may_be_off_by_its_roundings(name: str) -> None:
    """0.7 % are some two roundings to 8 bits."""
    model = _chain(
        CHAIN.replace("y = Neg(b)", "c = Constant<value_floats = [1.0]>() y = Mul(b, c)")
    )
    guard = PassGuard(model)
    (constant,) = (node for node in model.graph if node.op_type == "Constant")
    constant.attributes["value_floats"] = ir.AttrFloat32s("value_floats", [1.007])
    step = PassStep(name, model, lambda: Rename("a", "b"), False)
    if name == "ReducePrecision":
        guard.see(step)
        assert guard.finish()
    else:
        with pytest.raises(PassMismatchError):
            guard.see(step)
