"""In a child process: let onnxruntime say of which types and shapes a model's values are.

``safety.type_inference`` starts it by its name.
"""

from __future__ import annotations

from typing import Any

import onnx

from samba_onnx.runtime.engine.onnxruntime.channel_blocks import measured_block
from samba_onnx.runtime.engine.onnxruntime.sessions import make_session
from samba_onnx.runtime.engine.protocol import EngineSettings, Rewriting

__all__ = ["channel_block", "output_types"]

_SETTINGS = EngineSettings(threads=1, rewriting=Rewriting.NONE)
"""Nothing is folded, that is run."""


def output_types(model: str) -> dict[str, Any]:
    """Infer the outputs of a model without running any of it.

    Args:
        model: Path of the ONNX model; its outputs need no types.

    Returns:
        Under ``outputs``, a list of name, type as onnxruntime writes it, and shape, which is null
        where the rank is not known and where the output is no tensor.
    """
    proto = onnx.load(model)
    outputs = _outputs(proto)
    shapeless = [o.name for o in outputs if o.type.startswith("tensor(") and not o.shape]
    scalars = _scalars(proto, shapeless) if shapeless else set()
    return {
        "outputs": [
            [o.name, o.type, list(o.shape) if o.shape or o.name in scalars else None]
            for o in outputs
        ]
    }


def _scalars(proto: onnx.ModelProto, names: list[str]) -> set[str]:
    """Return the tensors that have no dimensions; of the others nobody knows how many.

    onnxruntime describes both alike, but it knows of how many elements their ``Shape`` is.
    """
    rank = "_rank"
    for name in names:
        proto.graph.node.append(onnx.helper.make_node("Shape", [name], [f"{name}{rank}"]))
        proto.graph.output.add(name=f"{name}{rank}")
    shapes = {output.name: list(output.shape) for output in _outputs(proto)}
    return {name for name in names if shapes[f"{name}{rank}"] == [0]}


def _outputs(proto: onnx.ModelProto) -> list[Any]:
    return list(make_session(proto.SerializeToString(), _SETTINGS).get_outputs())


def channel_block() -> dict[str, Any]:
    """Find out how many channels a block of onnxruntime's blocked layout has on this machine.

    Returns:
        Under ``block``, their number.
    """
    return {"block": measured_block()}
