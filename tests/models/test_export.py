"""Exported models compute what torch computes, and keep what the exporter knows about them."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

from models import Example, build
from models.cache import cached_onnx
from models.export import OPSET, export_example, export_onnx
from tests.rows import others_slow

# Measured against float64, rounding alone gives up to 5e-6 on outputs of order one.
TOLERANCE = {"rtol": 1e-5, "atol": 2e-5}


def evaluate(path: Path, inputs: dict[str, Tensor]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {key: value.numpy() for key, value in inputs.items()})


def expected(example: Example, inputs: dict[str, Tensor]) -> list[np.ndarray]:
    with torch.no_grad():
        result = example.module(**inputs)
    return [one.numpy() for one in ((result,) if isinstance(result, Tensor) else result)]


def compare(path: Path, example: Example, inputs: dict[str, Tensor]) -> None:
    for actual, wanted in zip(evaluate(path, inputs), expected(example, inputs), strict=True):
        np.testing.assert_allclose(actual, wanted, **TOLERANCE)


def dimensions(value: onnx.ValueInfoProto) -> list[str | int]:
    return [one.dim_param or one.dim_value for one in value.type.tensor_type.shape.dim]


def test_tiny_models_compute_what_torch_computes(name: str) -> None:
    path = cached_onnx(name)
    example = build(name, "tiny")
    compare(path, example, example.inputs)
    compare(path, example, example.draw(5))


def test_the_interface_has_the_names_and_static_shapes_of_the_example(name: str) -> None:
    graph = onnx.load(cached_onnx(name), load_external_data=False).graph
    example = build(name, "tiny")
    assert {one.name: tuple(dimensions(one)) for one in graph.input} == {
        key: tuple(value.shape) for key, value in example.inputs.items()
    }
    assert tuple(one.name for one in graph.output) == example.outputs


def test_nodes_carry_the_line_that_they_come_from(name: str) -> None:
    model = onnx.load(cached_onnx(name))
    traces = [
        entry.value
        for node in model.graph.node
        for entry in node.metadata_props
        if entry.key == "pkg.torch.onnx.stack_trace"
    ]
    # The exporter leaves out the few nodes that its own rewriting makes, such as GPT-2's Split.
    assert len(traces) >= 0.95 * len(model.graph.node)
    assert any("/models/" in trace and ", line " in trace for trace in traces)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", OPSET)]


@pytest.mark.parametrize("name", others_slow(["lstm", "bert", "llama"], ["lstm"]))
def test_dynamic_axes_take_other_sizes(name: str) -> None:
    path = cached_onnx(name, dynamic=True)
    example = build(name, "tiny")
    inputs = {key: torch.cat([value, value])[:3, :5] for key, value in example.draw(2).items()}
    compare(path, example, inputs)
    first = onnx.load(path).graph.input[0]
    assert dimensions(first) == ["batch", "sequence"]


def test_without_optimization_batch_norms_stay(tmp_path: Path) -> None:
    example = build("resnet50", "tiny")
    path = export_example(example, tmp_path / "raw.onnx", optimize=False)
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    assert kinds.count("BatchNormalization") == 20
    compare(path, example, example.inputs)


def test_large_weights_go_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("models.export._INLINE_BYTES", 1000)
    path = export_onnx("mlp", "tiny", tmp_path / "mlp.onnx", seed=2)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mlp.onnx", "mlp.onnx.data"]
    example = build("mlp", "tiny", seed=2)
    compare(path, example, example.inputs)
    assert capfd.readouterr() == ("", "")
