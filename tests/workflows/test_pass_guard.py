"""``--check-passes``: a pass that changes numbers is named, with the least that shows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import samba_onnx
from samba_onnx.errors import PassMismatchError, UsageError
from samba_onnx.passes import order, pipeline
from samba_onnx.workflows.reduction import Reduction
from tests.workflows.broken_passes import BROKEN, UnrunnablePass
from tests.workflows.test_value_comparison import net, with_pass


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return net(tmp_path / "net.onnx")


def check(model: Path, **options: object) -> tuple[str, ...]:
    path = model.with_suffix(".pef")
    with samba_onnx.convert(model, path, check_passes=True, sample=False, **options) as pef:
        return pef.manifest.notes


def test_right_passes_pass_and_the_report_says_how_many(model: Path) -> None:
    notes = check(model, dims={"n": 3})
    (said,) = [note for note in notes if "computed the same" in note]
    count = int(said.split()[3])
    manifest = samba_onnx.analyze(model, dims={"n": 3})
    assert count == sum(one.modified for one in manifest.passes)
    plain = samba_onnx.convert(model, model.with_suffix(".pef"), sample=False)
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
