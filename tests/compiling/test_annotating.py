"""The original model with what became of its nodes: every node has an answer, and the model is the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import samba_onnx
from samba_onnx.compiling.annotating import GONE, NodeAnnotation
from samba_onnx.compiling.annotating import annotate as annotate_for
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.errors import UsageError


def annotate(
    model: Path, output: Path, dims: dict[str, int] | None = None
) -> tuple[NodeAnnotation, ...]:
    return annotate_for(model, output, CompileOptions.of(dims=dims))


TEXT = """
<ir_version: 8, opset_import: ["" : 18]>
net (float[n, 8] x, bool c) => (float[n, 8] y, float[m, m] u)
<int64[1] size = {8}, float[1] one = {1}, int64[3] big = {0, 1, 0}> {
    h = Relu(x)
    same = Identity(h)
    shape = Shape(same)
    flat = Reshape(same, shape)
    twin = Relu(x)
    sum = Add(flat, twin)
    y = Mul(sum, one)
    u0, u1, u2, u3 = Unique<sorted = 1>(big)
    k = NonZero(sum)
    kf = Cast<to = 1>(k)
    kt = Transpose(kf)
    u = MatMul(kt, kf)
}
"""


def annotations(path: Path) -> dict[str, dict[str, str]]:
    """The annotations of the nodes by their first output."""
    return {
        node.output[0]: {
            entry.key.removeprefix("samba."): entry.value
            for entry in node.metadata_props
            if entry.key.startswith("samba.")
        }
        for node in onnx.load(path).graph.node
    }


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


def test_every_node_says_where_it_runs_or_why_nowhere(net: Path, tmp_path: Path) -> None:
    done = annotate(net, tmp_path / "a.onnx", dims={"n": 4})
    notes = annotations(tmp_path / "a.onnx")
    assert len(done) == len(notes) == 12
    assert notes["h"]["placement"] == notes["sum"]["placement"] == "rdu"
    manifest = samba_onnx.analyze(net, dims={"n": 4})
    for note in notes.values():
        if note["placement"] == "none":
            assert note == {"placement": "none", "reason": GONE}
            continue
        number, _, name = note["section"].partition(" ")
        assert f"({manifest.stages()[int(number)].name})" == name
    (fallback,) = manifest.fallbacks
    assert notes["k"]["placement"] == "cpu"
    assert notes["k"]["reason"] in {node.reason for node in fallback.reasons}
    on_cpu = [name for name, note in notes.items() if note["placement"] == "cpu"]
    assert len(on_cpu) == fallback.nodes
    gone = {name for name, note in notes.items() if note["placement"] == "none"}
    assert gone >= {"same", "shape", "flat", "u0"}  # the last one is read by nobody


def test_it_is_the_same_model(net: Path, tmp_path: Path) -> None:
    annotate(net, tmp_path / "a.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "a.onnx"), full_check=True)
    feed = {"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8), "c": np.array(True)}
    before, after = (
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        for path in (net, tmp_path / "a.onnx")
    )
    feed = {one.name: feed[one.name] for one in before.get_inputs()}
    for left, right in zip(before.run(None, feed), after.run(None, feed), strict=True):
        np.testing.assert_array_equal(left, right)
    annotate(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert annotations(tmp_path / "a.onnx") == annotations(tmp_path / "b.onnx")


def test_weights_beside_the_model_are_found_from_its_own_folder_only(
    net: Path, tmp_path: Path
) -> None:
    model = onnx.load(net)
    for tensor in model.graph.initializer:  # only raw data goes into a file of its own
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
        )
    onnx.save(
        model, tmp_path / "far.onnx", save_as_external_data=True, location="w", size_threshold=0
    )
    annotate(tmp_path / "far.onnx", tmp_path / "near.onnx")
    onnx.checker.check_model(tmp_path / "near.onnx")
    with pytest.raises(UsageError, match="write it into the same folder"):
        annotate(tmp_path / "far.onnx", tmp_path / "sub" / "a.onnx")
    assert not (tmp_path / "sub").exists()


def test_a_constant_beside_the_model_is_found_from_its_own_folder_only(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) '
        "{ c = Constant<value = float[2] {1.0, 2.0}>()\n y = Add(x, c) }"
    )
    (stored,) = (node.attribute[0].t for node in model.graph.node if node.op_type == "Constant")
    stored.CopyFrom(onnx.numpy_helper.from_array(np.array([1, 2], np.float32)))
    onnx.save(
        model,
        tmp_path / "far.onnx",
        save_as_external_data=True,
        location="w",
        size_threshold=0,
        convert_attribute=True,
    )
    annotate(tmp_path / "far.onnx", tmp_path / "near.onnx")
    with pytest.raises(UsageError, match="write it into the same folder"):
        annotate(tmp_path / "far.onnx", tmp_path / "sub" / "a.onnx")
