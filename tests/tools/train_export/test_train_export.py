"""``train-export``: weights of checkpoints in ONNX models."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.torch
import torch
from onnx import numpy_helper

import samba_onnx as samba
from tests.cli.conftest import SambaPort
from tests.importing.building import parse, ramp

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    text = """net (float[4, 6] x) => (float[4, 3] y) { h = MatMul(x, w) y = Add(h, b) }"""
    built = parse(text, w=ramp(6, 3), b=ramp(3))
    for node in built.graph.node:
        node.input[:] = ["head.b" if name == "b" else name for name in node.input]
    built.graph.initializer[1].name = "head.b"
    onnx.save(built, path)
    return path


def weights(path: Path) -> dict[str, np.ndarray]:
    loaded = onnx.load(path)
    return {t.name: numpy_helper.to_array(t) for t in loaded.graph.initializer}


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_the_state_of_a_trained_module(
    samba_port: SambaPort, model: Path, tmp_path: Path, suffix: str
) -> None:
    module = samba.from_onnx(model)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(2)
    checkpoint = tmp_path / f"checkpoint{suffix}"
    state = {key: samba.to_torch(value) for key, value in module.state_dict().items()}
    if suffix == ".pt":
        torch.save({"model": module.state_dict(), "step": 7}, checkpoint)
    else:
        safetensors.torch.save_file(state, checkpoint)
    result = samba_port("train-export", model, checkpoint, "--json", "-")
    assert (result.status, result.err) == (0, "")
    document = json.loads(result.out)
    jsonschema.validate(document, json.loads((DOCS / "trained.schema.json").read_text()))
    assert (document["written"], document["kept"]) == (["w", "head.b"], [])
    trained = tmp_path / "net.trained.onnx"
    x = ramp(4, 6)
    (made,) = onnxruntime.InferenceSession(trained).run(None, {"x": x})
    with torch.no_grad():
        wanted = samba.to_torch(module(torch.tensor(x)))
    np.testing.assert_allclose(made, wanted.numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(weights(trained)["w"], 2 * ramp(6, 3))


def test_names_of_the_model_other_types_and_some_weights_only(
    samba_port: SambaPort, model: Path, tmp_path: Path
) -> None:
    state = {
        "head.b": torch.ones(3, dtype=torch.bfloat16),
        "norm.num_batches_tracked": torch.ones(1),
    }
    torch.save(state, tmp_path / "c.pt")
    output = tmp_path / "new" / "t.onnx"
    result = samba_port("train-export", model, tmp_path / "c.pt", "-o", output)
    assert result.status == 0
    assert "1 weight of 2 written" in result.out.splitlines()[0]
    np.testing.assert_array_equal(weights(output)["head.b"], np.ones(3, np.float32))
    np.testing.assert_array_equal(weights(output)["w"], ramp(6, 3))


def test_data_beside_the_model_stays_beside_it(
    samba_port: SambaPort, model: Path, tmp_path: Path
) -> None:
    built = onnx.load(model)
    outside = tmp_path / "outside" / "net.onnx"
    outside.parent.mkdir()
    built.graph.initializer[0].CopyFrom(numpy_helper.from_array(ramp(6, 300), "w"))
    built.graph.initializer[1].CopyFrom(numpy_helper.from_array(ramp(300), "head.b"))
    built.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 300
    onnx.save(built, outside, save_as_external_data=True, location="net.data", size_threshold=0)
    torch.save({"w": torch.zeros(6, 300)}, tmp_path / "c.pt")
    assert samba_port("train-export", outside, tmp_path / "c.pt").status == 0
    trained = outside.with_name("net.trained.onnx")
    assert trained.with_name("net.trained.onnx.data").exists()
    assert not weights(trained)["w"].any()
    np.testing.assert_array_equal(weights(trained)["head.b"], ramp(300))


class Anything:
    """What nobody should unpickle."""


def test_what_cannot_be_written(samba_port: SambaPort, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    contents = {
        "foreign": {"w": torch.ones(6, 3), "other.weight": torch.ones(2)},
        "shape": {"w": torch.ones(3, 6)},
        "empty": {},
        "numbers": {"w": 3},
        "list": [torch.ones(2)],
        "object": {"w": Anything()},
        "counter": {"num_batches_tracked": torch.ones(1)},
    }
    messages = {
        "foreign": "has 'other.weight', which the model does not have; its initializers are w, head.b",
        "shape": "w has shape [6, 3] in the model, but the weight has [3, 6]",
        "empty": "holds no state_dict",
        "numbers": "holds no state_dict",
        "list": "holds no state_dict",
        "object": "other objects are never unpickled",
        "counter": "has none of the model's initializers",
        "text": "is no file of torch.save",
        "absent": "absent.pt",
    }
    for name, content in contents.items():
        torch.save(content, folder / f"{name}.pt")
    (folder / "text.pt").write_text("hello")
    before = sorted(tmp_path.iterdir())
    for name, message in messages.items():
        result = samba_port("train-export", model, folder / f"{name}.pt")
        assert (result.status, result.out) == (2, "")
        assert message in result.err, result.err
        assert len(result.err.splitlines()) == 1
    result = samba_port("train-export", model, folder / "shape.pt", "-o", model)
    assert "would overwrite the input" in result.err
    result = samba_port("train-export", folder / "text.pt", folder / "shape.pt")
    assert result.status == 2
    assert sorted(tmp_path.iterdir()) == before


def test_keys_that_may_be_several_weights(samba_port: SambaPort, tmp_path: Path) -> None:
    built = parse("net (float[2] x) => (float[2] y) { h = Add(x, a) y = Mul(h, b) }")
    for name, place in (("w/1", 0), ("w:1", 1)):
        built.graph.initializer.append(numpy_helper.from_array(ramp(2), name))
        built.graph.node[place].input[1] = name
    onnx.save(built, tmp_path / "m.onnx")
    torch.save({"w_1": torch.ones(2)}, tmp_path / "c.pt")
    result = samba_port("train-export", tmp_path / "m.onnx", tmp_path / "c.pt")
    assert "'w_1' may be any of w/1, w:1: give the names of the ONNX model" in result.err
    torch.save({"w/1": torch.ones(2)}, tmp_path / "c.pt")
    assert samba_port("train-export", tmp_path / "m.onnx", tmp_path / "c.pt").status == 0
