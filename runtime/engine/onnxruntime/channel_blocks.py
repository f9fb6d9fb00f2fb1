"""How many channels lie side by side in onnxruntime's blocked layout: it says so nowhere, so it is asked."""

from __future__ import annotations

import functools

import numpy as np
import onnx

from samba_onnx.facts.domains import BLOCKED_DOMAIN
from samba_onnx.runtime.engine.onnxruntime.sessions import make_session, ort_errors
from samba_onnx.runtime.engine.protocol import EngineSettings, Rewriting

__all__ = ["channel_block", "measured_block"]


@functools.cache
def channel_block() -> int:
    """Return the channels of a block on this machine; 0 where onnxruntime has no kernels for blocks."""
    try:
        return measured_block()
    except ort_errors():
        return 0


def measured_block() -> int:
    """Return the channels of a block on this machine. Whatever onnxruntime raises passes through."""
    channels = 64  # more than a block has anywhere, and a multiple of it
    value = np.arange(2 * channels, dtype=np.float32).reshape(1, channels, 1, 2)
    kind = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, value.shape)
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, value.shape)
    node = onnx.helper.make_node("ReorderInput", ["x"], ["y"], domain=BLOCKED_DOMAIN)
    graph = onnx.helper.make_graph([node], "reorder", [kind], [result])
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid(BLOCKED_DOMAIN, 1)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    # Nothing is folded, that is run.
    settings = EngineSettings(threads=1, rewriting=Rewriting.NONE)
    (blocks,) = make_session(model.SerializeToString(), settings).run(None, {"x": value})
    # The second position of the first channel stands behind the first position of the block's others.
    return int(np.flatnonzero(np.ravel(blocks) == 1)[0])
