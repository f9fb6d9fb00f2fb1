"""The exporter for TorchScript gives the same model."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from models import build
from models.__main__ import main


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_traced_model_computes_what_the_module_does(dynamic: bool, tmp_path: Path) -> None:
    path = tmp_path / "lenet.onnx"
    options = ["--variant", "tiny", "--traced", "--seed", "3", *["--dynamic"] * dynamic]
    assert main(["lenet", str(path), *options]) == 0
    (value,) = onnx.load(path).graph.input
    assert value.type.tensor_type.shape.dim[0].dim_param == ("batch" if dynamic else "")
    example = build("lenet", "tiny", 3)
    (expected,) = [example.module(**example.inputs)]
    session = ort.InferenceSession(str(path))
    (result,) = session.run(None, {name: tensor.numpy() for name, tensor in example.inputs.items()})
    # The same kernels' rounding, added up over a few layers.
    np.testing.assert_allclose(result, expected.detach().numpy(), rtol=1e-4, atol=1e-6)
