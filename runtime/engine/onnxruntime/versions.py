"""Which versions of ONNX the installed onnxruntime takes: it says so nowhere, so it is asked."""

from __future__ import annotations

import functools

import onnx
from onnx import helper

from samba_onnx.facts.domains import is_default
from samba_onnx.facts.versions import IR_VERSION, OPSET
from samba_onnx.runtime.engine.lowerings.nodes import all_nodes
from samba_onnx.runtime.engine.onnxruntime.sessions import make_session, ort_errors
from samba_onnx.runtime.engine.protocol import EngineSettings

__all__ = ["newest_ir_version", "newest_opset", "restamp"]


@functools.cache
def newest_opset() -> int:
    """Return the newest version of the default operator set that onnxruntime takes, of those that onnx knows."""
    # From the newest down. OPSET itself is not asked for: it is what stages are compiled to.
    newer = range(onnx.defs.onnx_opset_version(), OPSET, -1)
    return next((version for version in newer if _accepts(version, IR_VERSION)), OPSET)


@functools.cache
def newest_ir_version() -> int:
    """Return the newest version of the file format that onnxruntime takes, of those that onnx knows."""
    newer = range(int(onnx.IR_VERSION), IR_VERSION, -1)
    return next((version for version in newer if _accepts(OPSET, version)), IR_VERSION)


def _accepts(opset: int, ir_version: int) -> bool:
    """Return whether onnxruntime reads a model of one node that says it is of these versions."""
    value = functools.partial(
        helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT, shape=[1]
    )
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "versions", [value("x")], [value("y")]
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    try:
        make_session(model.SerializeToString(), EngineSettings(threads=1))
    except ort_errors():
        return False
    return True


def restamp(model: onnx.ModelProto) -> bool:
    """State the newest versions that onnxruntime takes in place of newer ones, where no operator is newer.

    Args:
        model: Is changed in place. onnxruntime still refuses attributes and types that are newer.

    Returns:
        Whether it was changed.
    """
    entries = [
        entry
        for entry in model.opset_import
        if is_default(entry.domain) and entry.version > newest_opset()
    ]
    if model.ir_version <= newest_ir_version() and not entries:
        return False
    # A newer version in the file is only a number, but for a newer operator there is no kernel.
    if entries and not all(map(_is_older, all_nodes(model.graph))):
        return False
    for entry in entries:
        entry.version = newest_opset()
    model.ir_version = min(model.ir_version, newest_ir_version())
    return True


def _is_older(node: onnx.NodeProto) -> bool:
    """Return whether the newest operator set that onnxruntime takes has a node's operator."""
    if not is_default(node.domain):
        return True
    try:
        onnx.defs.get_schema(node.op_type, newest_opset())
    except onnx.defs.SchemaError:
        return False
    return True
