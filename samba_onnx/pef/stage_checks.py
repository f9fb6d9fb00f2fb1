"""Whether a stage's ONNX model is the one that the manifest describes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from samba_onnx.errors import ModelError, ModelFileError, PefFormatError
from samba_onnx.facts.dtypes import ELEMENT_TYPES, tensor_text
from samba_onnx.pef.layout import WEIGHTS_MEMBER
from samba_onnx.pef.manifest import Fallback, Section, Stored, Symbol
from samba_onnx.safety.files import printable
from samba_onnx.safety.graph_checks import check_model

__all__ = ["parse_stage"]

_ONNX_NAMES = {element.number: element.name for element in ELEMENT_TYPES.values()}
_ONNX_NAMES[onnx.TensorProto.STRING] = "string"


def parse_stage(
    content: bytes,
    stage: Section | Fallback,
    symbols: Mapping[str, Symbol],
    weights_bytes: int,
) -> onnx.ModelProto:
    """Parse a stage's member and hold it against the manifest.

    Args:
        content: The member.
        stage: What the manifest says about it.
        symbols: All symbols by name.
        weights_bytes: Size of the member that external data lies in.

    Returns:
        The model.

    Raises:
        PefFormatError: It cannot be parsed, breaks a rule of ONNX, or its inputs, outputs,
            initializers or the places of their content differ from the manifest.
    """
    where = f"stage {printable(stage.name)}"
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
        # ONNX's rules first: what follows takes names to be unique and nesting to be bounded.
        check_model(model, name=where, external_size=_size_of(weights_bytes))
    except DecodeError:
        raise PefFormatError(f"{where} is no ONNX model") from None
    except ModelError as error:
        raise PefFormatError(str(error)) from error
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    # A sparse initializer has its name in its values.
    weights.update(sparse.values.name for sparse in graph.sparse_initializer)
    # Sorted, because initializers have no order; inputs and outputs are bound by place.
    _same_names(where, "initializers", sorted(weights), sorted(stage.weights))
    # Old models list initializers among the inputs.
    reads = [value.name for value in graph.input if value.name not in weights]
    _same_names(where, "inputs", reads, stage.inputs)
    _same_names(where, "outputs", [value.name for value in graph.output], stage.outputs)
    for value in (*graph.input, *graph.output):
        _check_value(where, value, symbols[value.name])
    for tensor in graph.initializer:
        _check_initializer(where, tensor, symbols[tensor.name])
    # A reference inside a body or attribute would be read by onnxruntime without the manifest
    # knowing of it.
    _refuse_other_external(where, graph)
    return model


def _size_of(weights_bytes: int) -> Callable[[str], int]:
    """Return the function that tells ``check_model`` the size of external data."""

    def size(location: str) -> int:
        # No file but the PEF is ever opened because a stage names it.
        if location != WEIGHTS_MEMBER:
            raise ModelFileError(f"external data in {printable(location)} instead of the PEF")
        return weights_bytes

    return size


def _same_names(where: str, what: str, actual: Sequence[str], declared: Sequence[str]) -> None:
    if list(actual) != list(declared):
        # The same names in another order differ, too, and have no difference as sets.
        differing = sorted(set(actual).symmetric_difference(declared)) or list(actual)
        names = ", ".join(printable(name, 40) for name in differing[:3])
        raise PefFormatError(f"{where}: its {what} differ from the manifest: {names}")


def type_text(proto: onnx.TypeProto) -> str:
    """Return a type in ONNX's text form; empty when it says nothing."""
    kind = proto.WhichOneof("value")
    if kind in {"tensor_type", "sparse_tensor_type"}:
        leaf = getattr(proto, kind)
        return f"{kind.removesuffix('_type')}({_ONNX_NAMES.get(leaf.elem_type, '')})"
    if kind == "sequence_type":
        return f"seq({type_text(proto.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({type_text(proto.optional_type.elem_type)})"
    if kind == "map_type":
        key = _ONNX_NAMES.get(proto.map_type.key_type, "")
        return f"map({key},{type_text(proto.map_type.value_type)})"
    return ""


def _check_value(where: str, value: onnx.ValueInfoProto, symbol: Symbol) -> None:
    """Compare a value's type and shape with the symbol's, as far as both are known."""
    kind = type_text(value.type)
    # A type that the model leaves open is no contradiction.
    if kind and symbol.type and "()" not in kind and kind != symbol.type:
        raise PefFormatError(
            f"{where}: {printable(value.name)} is {kind}, the manifest says {symbol.type}"
        )
    tensor = value.type.tensor_type
    shape = symbol.stage_shape
    if shape is None or not tensor.HasField("shape"):
        return
    dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    if len(dims) != len(shape) or any(
        isinstance(want, int) and have is not None and want != have
        for have, want in zip(dims, shape, strict=False)
    ):
        raise PefFormatError(
            f"{where}: {printable(value.name)} has shape {dims}, the manifest says "
            f"{printable(list(shape))}"
        )


def _check_initializer(where: str, tensor: onnx.TensorProto, symbol: Symbol) -> None:
    name = printable(tensor.name)
    kind = tensor_text(_ONNX_NAMES.get(tensor.data_type, ""))
    if kind != symbol.type or tuple(tensor.dims) != symbol.shape:
        raise PefFormatError(
            f"{where}: {name} is {kind} {list(tensor.dims)}, the manifest says "
            f"{symbol.type} {printable(symbol.shape)}"
        )
    # Small constants lie in the model itself.
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    external = {entry.key: entry.value for entry in tensor.external_data}
    place = Stored(int(external.get("offset", "0")), int(external.get("length", "-1")))
    # These three keys and no others: a key that the manifest does not cover, as `checksum`, is
    # refused.
    if place != symbol.stored or set(external) != {"location", "offset", "length"}:
        raise PefFormatError(f"{where}: {name} is not where the manifest says it is stored")


def _refuse_other_external(where: str, graph: onnx.GraphProto) -> None:
    """Only initializers of the main graph may lie outside the stage's own file."""
    for tensor in _inner_tensors(graph.node):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            name = printable(tensor.name)
            raise PefFormatError(f"{where}: inner tensor {name} lies outside the model")


def _inner_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    """Yield every tensor in attributes and subgraphs; nesting is bounded by check_model."""
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            sparse = (attribute.sparse_tensor, *attribute.sparse_tensors)
            yield from (part for one in sparse for part in (one.values, one.indices))
            for inner in (attribute.g, *attribute.graphs):
                yield from inner.initializer
                yield from _inner_tensors(inner.node)
