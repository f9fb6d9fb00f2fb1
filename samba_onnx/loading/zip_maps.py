"""Tensors in the place of the maps that classifiers of ``ai.onnx.ml`` end with."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from samba_onnx.facts.domains import ML_DOMAIN
from samba_onnx.safety.files import printable

__all__ = ["without_zip_maps"]

_SHOWN = 120
"""Characters of the classes that a note shows."""


def without_zip_maps(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Return a model whose outputs are tensors where a ZipMap made maps of their rows.

    skl2onnx ends every classifier with one, unless it is told otherwise. A map holds the scores of a row by
    the names of their classes, which are attributes: the tensor holds the same scores in the same order.

    1. The ZipMap is in the main graph, and what it makes is an output that no other node reads.
    2. The output keeps its name.

    Args:
        proto: A model that ``check_model`` accepts; is left as it is.

    Returns:
        The model itself where there is no such node, else a copy; and a note for each that went, which says
        what the columns of its output stand for.
    """
    if not any(True for _ in _zip_maps(proto.graph)):
        return proto, ()
    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    return plain, tuple(_replace(plain.graph, node) for node in list(_zip_maps(plain.graph)))


def _zip_maps(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    # Case 1.
    outputs = {value.name for value in graph.output}
    for node in graph.node:
        if node.domain == ML_DOMAIN and node.op_type == "ZipMap" and node.output[0] in outputs:
            yield node


def _replace(graph: onnx.GraphProto, node: onnx.NodeProto) -> str:
    labels: list[object] = []
    for attribute in node.attribute:
        if attribute.name == "classlabels_int64s":
            labels = list(attribute.ints)
        elif attribute.name == "classlabels_strings":
            labels = [text.decode(errors="replace") for text in attribute.strings]
    name = node.output[0]
    # Case 2.
    copied = onnx.helper.make_node("Identity", [node.input[0]], [name], name=node.name)
    node.CopyFrom(copied)
    for value in graph.output:
        if value.name == name:
            kind = onnx.TensorProto.FLOAT  # the only type that a ZipMap takes
            value.CopyFrom(onnx.helper.make_tensor_value_info(name, kind, [None, len(labels)]))
    classes = printable(", ".join(map(str, labels)), _SHOWN)
    return (
        f"output {printable(name)!r} is a tensor here, not a sequence of maps: its columns are the "
        f"scores of the classes {classes}"
    )
