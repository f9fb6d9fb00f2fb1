"""What onnxruntime's graph optimizer does wrong."""

from __future__ import annotations

from typing import Final

import onnx

from samba_onnx.runtime.engine.lowerings.stage_model import StageModel

FAULTY: Final = ("Pad_Fusion",)
"""All of them, for models that are not looked at."""


def disable_faulty_optimizers(stage: StageModel) -> None:
    """Note which of onnxruntime's optimizers must not see a stage.

    Args:
        stage: As onnxruntime gets it otherwise.
    """
    stage.disabled_optimizers = tuple(faulty_optimizers(stage.model))


def faulty_optimizers(model: onnx.ModelProto) -> list[str]:
    """Return the optimizers of onnxruntime that would change what a model computes.

    Version 1.31 moves a Pad into the MaxPool that reads it, whatever it pads with; but a pooling
    never chooses what it has padded itself, as if that were minus infinity.

    Args:
        model: To be run.

    Returns:
        Names for ``InferenceSession(disabled_optimizers=...)``.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        if node.op_type != "MaxPool":
            continue
        maker = makers.get(node.input[0])
        if maker is not None and maker.op_type == "Cast":
            maker = makers.get(maker.input[0])
        if maker is not None and maker.op_type == "Pad":
            return list(FAULTY)
    return []
