"""Models are written back with new weights and nothing else changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from models import MODELS
from models.cache import cached_onnx
from samba_onnx.errors import ModelError, OutputError, UsageError
from samba_onnx.importing import module_from_onnx, to_onnx, writing
from tests.importing.building import parse, ramp

pytestmark = pytest.mark.filterwarnings("ignore::samba_onnx.errors.FoldedWeightsWarning")


@pytest.mark.parametrize("name", list(MODELS))
def test_untrained_models_come_back_byte_for_byte(name: str) -> None:
    path = cached_onnx(name, "tiny")
    original = onnx.load(path)
    for source in (path, original):
        written = to_onnx(module_from_onnx(source))
        assert written.SerializeToString(deterministic=True) == original.SerializeToString(
            deterministic=True
        )


def _affine() -> onnx.ModelProto:
    model = parse(
        "g (float[2,40] x) => (float[2,40] y) { a = MatMul(x, w)\n y = Add(a, b) }",
        w=ramp(40, 40),
        b=ramp(40),
    )
    model.doc_string = "what it is for"
    model.metadata_props.add(key="author", value="someone")
    model.graph.initializer.append(numpy_helper.from_array(np.arange(3), "unread"))
    return model


def test_only_the_content_of_weights_changes() -> None:
    original = _affine()
    module = module_from_onnx(original)
    with torch.no_grad():
        for one in module.parameters():
            one.mul_(2.0)
    written = to_onnx(module)
    arrays = {one.name: numpy_helper.to_array(one) for one in written.graph.initializer}
    np.testing.assert_array_equal(arrays["w"], 2 * ramp(40, 40))
    np.testing.assert_array_equal(arrays["b"], 2 * ramp(40))
    for one, before in zip(written.graph.initializer, original.graph.initializer, strict=True):
        one.raw_data = before.raw_data
    assert written == original
    assert original == _affine()


@pytest.mark.parametrize(
    "kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16]
)
@pytest.mark.parametrize("raw", [False, True])
def test_every_type_and_form_of_storage_is_kept(kind: int, raw: bool) -> None:
    values = ramp(6)
    if raw:
        stored = numpy_helper.from_array(values.astype(helper.tensor_dtype_to_np_dtype(kind)), "w")
    else:
        stored = helper.make_tensor("w", kind, [6], values.tolist())
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, [6])],
        [helper.make_tensor_value_info("y", kind, [6])],
        [stored],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    module = module_from_onnx(model)
    assert to_onnx(module) == model
    with torch.no_grad():
        next(module.parameters()).neg_()
    (tensor,) = to_onnx(module).graph.initializer
    assert tensor.HasField("raw_data") == raw
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), -numpy_helper.to_array(stored))


def test_weights_in_constants_can_be_named_and_written_back() -> None:
    model = parse(
        "g (float[2] x) => (float[2] y) { w = Constant<value = float[2] {1.0, 2.0}>()\n"
        " y = Mul(x, w) }"
    )
    assert not list(module_from_onnx(model).parameters())
    module = module_from_onnx(model, weights=["w"])
    with torch.no_grad():
        next(module.parameters()).fill_(5.0)
    written = to_onnx(module)
    again = module_from_onnx(written)
    assert again(torch.ones(2)).tolist() == [5.0, 5.0]


def test_external_data_stays_beside_the_file(tmp_path: Path) -> None:
    source = tmp_path / "in" / "model.onnx"
    source.parent.mkdir()
    onnx.save(_affine(), source, save_as_external_data=True, size_threshold=0)
    module = module_from_onnx(source)
    with torch.no_grad():
        for one in module.parameters():
            one.add_(1.0)
    target = tmp_path / "out" / "model.onnx"
    to_onnx(module, target)
    assert sorted(one.name for one in target.parent.iterdir()) == ["model.onnx", "model.onnx.data"]
    arrays = {one.name: numpy_helper.to_array(one) for one in onnx.load(target).graph.initializer}
    np.testing.assert_array_equal(arrays["w"], ramp(40, 40) + 1)
    np.testing.assert_array_equal(arrays["b"], ramp(40) + 1)
    np.testing.assert_array_equal(arrays["unread"], np.arange(3))
    assert not to_onnx(module).graph.initializer[0].external_data


def test_a_module_may_be_written_over_its_own_source(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(
        _affine(), path, save_as_external_data=True, location="model.onnx.data", size_threshold=0
    )
    module = module_from_onnx(path)
    with torch.no_grad():
        for one in module.parameters():
            one.zero_()
    to_onnx(module, path)
    again = module_from_onnx(path)
    assert all(not one.any() for one in again.parameters())


def test_more_than_a_file_can_hold_goes_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MOST_INLINE", 1000)
    module = module_from_onnx(_affine())
    to_onnx(module, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx.data").stat().st_size == 40 * 40 * 4
    loaded = onnx.load(tmp_path / "model.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(loaded.graph.initializer[0]), ramp(40, 40))


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    module = module_from_onnx(_affine())

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "_write_data", fail)
    monkeypatch.setattr(writing, "MOST_INLINE", 0)
    with pytest.raises(OutputError, match="no space left"):
        to_onnx(module, path)
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"]


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(UsageError, match="expected what module_from_onnx returned, got Linear"):
        to_onnx(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    module = module_from_onnx(_affine())
    module.b = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(ModelError, match=r"b has shape \[40\] in the model, but .* \[3\] now"):
        to_onnx(module)
