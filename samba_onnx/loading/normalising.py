"""Rewrite what the IR cannot hold, without changing what the model computes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import onnx

from samba_onnx.errors import InvalidModelError, ModelLimitError
from samba_onnx.safety.files import printable
from samba_onnx.safety.node_checks import subgraphs

__all__ = ["normalise"]

DENSE_BYTES = 1 << 30
"""A sparse tensor may become this large."""

NO_NAMES = frozenset({"any", "nan", "none", "null", "undefined", "unk", "unknown"})
"""Words in small letters that stand in the place of a dimension's name and say that there is none. What has a
number behind it, as ``unk__7``, is the name of one unknown size."""

_A = onnx.AttributeProto


def normalise(proto: onnx.ModelProto, *, owned: bool) -> onnx.ModelProto:
    """Make sparse constants dense, and dimensions of -1 or a placeholder unknown.

    Args:
        proto: A model that ``check_model`` accepts.
        owned: Whether it may be changed; else a copy is, when there is anything to do.

    Returns:
        ``proto`` or the copy.

    Raises:
        InvalidModelError: A sparse tensor's indices lie outside of it, or a value is a map.
        ModelLimitError: A sparse tensor becomes too large.
    """
    # A copy only where there is something to change, for it takes the memory of the model once
    # more.
    if not owned and any(_is_special(graph) for graph in _graphs(proto)):
        original, proto = proto, onnx.ModelProto()
        proto.CopyFrom(original)
    for graph in _graphs(proto):
        for info in _values(graph):
            _refuse_maps(info)
            for dim in _dims(info.type):
                if _is_unknown(dim):
                    dim.Clear()
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse, sparse.values.name))
        graph.ClearField("sparse_initializer")
    for node in _nodes(proto):
        # How another runtime spreads it over its devices; an incomplete one cannot be written again.
        node.ClearField("device_configurations")
        for attribute in node.attribute:
            if attribute.type == _A.SPARSE_TENSOR:
                attribute.t.CopyFrom(_dense(attribute.sparse_tensor, ""))
                attribute.ClearField("sparse_tensor")
                attribute.type = _A.TENSOR
                # A Constant is the only operator with such an attribute, and has its dense form
                # under this name.
                attribute.name = "value"
    return proto


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of all graphs and functions."""
    for function in proto.functions:
        yield from function.node
    for graph in _graphs(proto):
        yield from graph.node


def _graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph and all subgraphs, in functions too."""
    yield from _with_subgraphs(proto.graph)
    for function in proto.functions:
        yield from _inside(function.node)


def _with_subgraphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    yield from _inside(graph.node)


def _inside(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for _, graph in subgraphs(node):
            yield from _with_subgraphs(graph)


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.input
    yield from graph.output
    yield from graph.value_info


def _dims(declared: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """Yield the dimensions of a type, that of a sequence's or optional's elements included."""
    kind = declared.WhichOneof("value")
    if kind in {"sequence_type", "optional_type"}:
        yield from _dims(getattr(declared, kind).elem_type)
    elif kind == "tensor_type":
        yield from declared.tensor_type.shape.dim


def _is_unknown(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Tell whether a dimension states neither a size nor a name.

    Two dimensions of one name are of one size. Some exporters write the same sign for all that they do not
    know, as paddle2onnx does: no name has no letter, and none of these words is one.
    """
    if dim.WhichOneof("value") == "dim_param":
        name = dim.dim_param.strip()
        return name.casefold() in NO_NAMES or not any(map(str.isalpha, name))
    return dim.dim_value < 0


def _is_special(graph: onnx.GraphProto) -> bool:
    """Tell whether there is anything to rewrite in a graph itself."""
    return (
        bool(graph.sparse_initializer)
        or any(node.device_configurations for node in graph.node)
        or any(a.type == _A.SPARSE_TENSOR for node in graph.node for a in node.attribute)
        or any(_is_unknown(dim) for info in _values(graph) for dim in _dims(info.type))
    )


def _refuse_maps(info: onnx.ValueInfoProto) -> None:
    declared = info.type
    while (kind := declared.WhichOneof("value")) in {"sequence_type", "optional_type"}:
        declared = getattr(declared, kind or "").elem_type
    if kind == "map_type":
        raise InvalidModelError(
            f"value {printable(info.name)!r} is a map, which cannot be converted: export without "
            "maps (skl2onnx: options={'zipmap': False})"
        )


def _dense(sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
    """Return a sparse tensor with its zeros."""
    values = onnx.numpy_helper.to_array(sparse.values)
    shape = tuple(sparse.dims)
    size = math.prod(shape) * values.dtype.itemsize
    if size > DENSE_BYTES:
        raise ModelLimitError(
            f"sparse tensor {printable(sparse.values.name)!r} takes {size} bytes when dense, "
            f"at most {DENSE_BYTES} are safe"
        )
    places = _places(onnx.numpy_helper.to_array(sparse.indices), shape)
    # Before numpy indexes with them: negative ones would count from the end, and none may write
    # elsewhere.
    if places.size and (int(places.min()) < 0 or int(places.max()) >= math.prod(shape)):
        raise InvalidModelError(
            f"sparse tensor {printable(sparse.values.name)!r} has an index outside of its shape"
        )
    dense = np.zeros(shape, values.dtype)
    dense.reshape(-1)[places] = values
    return onnx.numpy_helper.from_array(dense, name)


def _places(indices: npt.NDArray[np.int64], shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return flat positions; -1 stands for one that is out of range."""
    if indices.ndim == 1:
        return indices
    # Per axis, before they are flattened: an index too large for its axis may be a legal flat
    # position.
    outside = (indices < 0) | (indices >= np.asarray(shape, np.int64))
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return np.where(outside.any(axis=1), -1, indices @ np.asarray(strides, np.int64))
