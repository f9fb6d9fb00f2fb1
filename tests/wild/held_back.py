"""Models of tools, options and families that the others leave out: each was looked at once, when all was done."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.wild.sklearn_models import SKLEARN, data, written
from tests.wild.subject import Subjects, rewritten_by
from tests.wild.torch_exports import DYNAMO, exported, traced
from tests.wild.torch_exports import written as written_by_torch

ONNX = Subjects("onnx")
ONNXSCRIPT = Subjects("onnxscript")
TOOLS = Subjects("onnxruntime.tools")


def _converted(opset: int) -> onnx.ModelProto:
    """Return a model after onnx's own version converter, as registries of models keep them."""
    return onnx.version_converter.convert_version(traced("mobilenet_v3"), opset)


def _composed() -> onnx.ModelProto:
    """Two models in one: what a picture goes through before a network."""
    body = exported("lenet")
    name = body.graph.input[0].name
    shape = [dim.dim_value for dim in body.graph.input[0].type.tensor_type.shape.dim]
    before = onnx.parser.parse_model(
        f"""<ir_version: {body.ir_version}, opset_import: ["": {body.opset_import[0].version}]>
        before (uint8[{",".join(map(str, shape))}] picture) => (float[{",".join(map(str, shape))}] ready)
        <float middle = {{127.5}}, float one = {{1.0}}> {{
          numbers = Cast<to = 1>(picture)
          parts = Div(numbers, middle)
          ready = Sub(parts, one)
        }}"""
    )
    return onnx.compose.merge_models(before, body, io_map=[("ready", name)], prefix1="before_")


def _extracted() -> onnx.ModelProto:
    """The first layers of a network alone, cut out by onnx's extractor."""
    model = traced("resnet50")
    last = [node.output[0] for node in model.graph.node if node.op_type == "Add"][1]

    def write(source: Path, path: Path) -> None:
        onnx.utils.extract_model(str(source), str(path), [model.graph.input[0].name], [last])

    return rewritten_by(model, write)


def _symbolic() -> onnx.ModelProto:
    """A model with the shapes that onnxruntime's symbolic inference writes into it."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    model: onnx.ModelProto = SymbolicShapeInference.infer_shapes(
        traced("whisper_encoder", dynamic=True), auto_merge=True
    )
    return model


def _function() -> onnx.ModelProto:
    from tests.wild.scripted import recurrent  # loads onnxscript

    model: onnx.ModelProto = recurrent.to_model_proto()
    return model


def _optimized_by_onnxscript() -> onnx.ModelProto:
    import onnx_ir as ir
    import onnxscript.optimizer
    import onnxscript.rewriter.ort_fusions as fusions

    model = ir.from_proto(exported("llama", raw=True))
    onnxscript.optimizer.optimize(model)
    fused, _ = fusions.optimize_for_ort(model)
    return ir.to_proto(fused)


def _stacked() -> onnx.ModelProto:
    from sklearn.ensemble import StackingRegressor
    from sklearn.linear_model import RidgeCV
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.tree import DecisionTreeRegressor

    features, _ = data()
    members = [
        ("tree", DecisionTreeRegressor(max_depth=3, random_state=0)),
        ("near", KNeighborsRegressor(3)),
    ]
    stack = StackingRegressor(members, final_estimator=RidgeCV())
    return written(stack.fit(features, np.abs(features[:, 1])))


def _state_space() -> onnx.ModelProto:
    """A state space of Mamba's kind, whose steps torch's exporter writes one by one."""
    import torch
    from transformers import MambaConfig, MambaModel

    torch.manual_seed(0)
    config = MambaConfig(
        vocab_size=40, hidden_size=16, state_size=4, num_hidden_layers=1, time_step_rank=4, expand=2
    )
    model = MambaModel(config).eval()

    class Text(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> Any:
            return self.model(input_ids=x, use_cache=False).last_hidden_state

    return written_by_torch(Text(), (torch.randint(0, 40, (1, 6)),), dynamo=True, opset=18)


ONNX.add("version converter-mobilenet_v3 to opset 23", functools.partial(_converted, 23))
ONNX.add("compose-pictures of bytes and lenet", _composed)
ONNX.add("extractor-first layers of resnet50", _extracted)
TOOLS.add("symbolic_shape_infer-whisper_encoder", _symbolic, dims={"batch": 2})
ONNXSCRIPT.add("function and loop", _function)
ONNXSCRIPT.add("optimizer and fusions for onnxruntime-llama", _optimized_by_onnxscript)
SKLEARN.add("stacking", _stacked, shapes={"X": (4, 6)})
DYNAMO.add("mamba", _state_space)
