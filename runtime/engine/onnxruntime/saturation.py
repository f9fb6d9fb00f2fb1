"""Do onnxruntime's products of uint8 and int8 saturate on this processor?"""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from samba_onnx.runtime.engine.lowerings.unsigned_weights import signed_products
from samba_onnx.runtime.engine.onnxruntime.sessions import make_session
from samba_onnx.runtime.engine.protocol import EngineSettings, Rewriting

__all__ = ["departure_of", "products_saturate"]

_LENGTH: Final = 64
"""Products that a probe adds up: enough for the kernels that take several at once."""


@functools.cache
def products_saturate() -> bool:
    """Return whether products of uint8 and int8 are wrong here; asked of the kernels once per process.

    No list of processors would tell: it depends on how onnxruntime was built, too.
    """
    kinds = {"a": (TensorProto.UINT8, [1, _LENGTH]), "b": (TensorProto.INT8, [_LENGTH, 1])}
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "probe",
        [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1])],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    settings = EngineSettings(threads=1, rewriting=Rewriting.NONE)
    session = make_session(model.SerializeToString(), settings)
    # Two neighbours add up to 64770, twice of what 16 bits hold.
    feeds = {"a": np.full((1, _LENGTH), 255, np.uint8), "b": np.full((_LENGTH, 1), 127, np.int8)}
    return int(session.run(None, feeds)[0].item()) != 255 * 127 * _LENGTH


def departure_of(model: onnx.ModelProto) -> str:
    """Say that onnxruntime is kept from its own kernels in a model, and why.

    Args:
        model: Somebody else's, as it is.

    Returns:
        A sentence; empty where its kernels are right on this processor, or the model has no such products.
    """
    count = signed_products(model)
    if not count or not products_saturate():
        return ""
    products = (
        "1 product of the original was"
        if count == 1
        else f"{count:,} products of the original were"
    )
    return (
        f"onnxruntime's own kernels for uint8 times int8 saturate on this processor: {products} "
        "computed exactly, so that onnxruntime by itself may answer otherwise"
    )
