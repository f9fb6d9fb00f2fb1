"""Types behind foreign operators, without a child process for each of a hundred models of one node."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from samba_onnx.errors import ExecutionError
from samba_onnx.passes.rewrites import infer_foreign_types
from samba_onnx.runtime.engine.onnxruntime.child_types import output_types
from samba_onnx.safety.type_inference import OutputType


@pytest.fixture(autouse=True)
def types_from_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def infer(model: onnx.ModelProto) -> dict[str, OutputType]:
        path = tmp_path / "types.onnx"
        onnx.save(model, path)
        try:
            answer = output_types(str(path))
        except Exception as error:
            raise ExecutionError(f"inferring types: {error}") from error  # as the sandbox says it
        return {
            name: OutputType(kind, None if shape is None else tuple(shape))
            for name, kind, shape in answer["outputs"]
        }

    monkeypatch.setattr(infer_foreign_types, "infer_output_types", infer)
