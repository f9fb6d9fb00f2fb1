"""Whether a tensor holds what it declares, decided without reading its content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from samba_onnx.errors import InvalidModelError, ModelLimitError
from samba_onnx.safety.files import printable
from samba_onnx.safety.limits import Limits
from samba_onnx.safety.text_checks import check_pairs, check_text

__all__ = [
    "BITS",
    "ExternalSize",
    "ExternalSpan",
    "check_sparse_tensor",
    "check_tensor",
    "check_type",
    "elements_of",
    "external_span",
    "is_whole_type",
]

ExternalSize = Callable[[str], int]
"""Gives the size in bytes of the file at a location; raises ModelFileError if there is none."""

_T = onnx.TensorProto

_NEW_BITS = {
    "INT2": 2,  # onnx 1.20
    "UINT2": 2,
    "FLOAT6E2M3": 6,  # onnx 1.23
    "FLOAT6E3M2": 6,
}
"""Bits of the types that the oldest onnx of pyproject.toml does not know, with the first that does."""

BITS: dict[int, int] = {
    **{getattr(_T, name): bits for name, bits in _NEW_BITS.items() if hasattr(_T, name)},
    **dict.fromkeys((_T.INT4, _T.UINT4, _T.FLOAT4E2M1), 4),
    **dict.fromkeys((_T.BOOL, _T.INT8, _T.UINT8, _T.FLOAT8E4M3FN, _T.FLOAT8E4M3FNUZ), 8),
    **dict.fromkeys((_T.FLOAT8E5M2, _T.FLOAT8E5M2FNUZ, _T.FLOAT8E8M0), 8),
    **dict.fromkeys((_T.INT16, _T.UINT16, _T.FLOAT16, _T.BFLOAT16), 16),
    **dict.fromkeys((_T.INT32, _T.UINT32, _T.FLOAT), 32),
    **dict.fromkeys((_T.INT64, _T.UINT64, _T.DOUBLE, _T.COMPLEX64), 64),
    _T.COMPLEX128: 128,
}
"""Bits of one element by data type; strings have no fixed size and are not listed."""

_DATA_FIELDS = (
    "raw_data",
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "double_data",
    "uint64_data",
)
_WIDE_FIELDS: dict[int, tuple[str, int]] = {
    _T.FLOAT: ("float_data", 1),
    _T.COMPLEX64: ("float_data", 2),
    _T.DOUBLE: ("double_data", 1),
    _T.COMPLEX128: ("double_data", 2),
    _T.INT64: ("int64_data", 1),
    _T.UINT64: ("uint64_data", 1),
    _T.UINT32: ("uint64_data", 1),
    _T.STRING: ("string_data", 1),
}
"""Typed field and entries per element; all other data types use ``int32_data``."""


_WRAPPING = frozenset({_T.INT32, _T.INT16, _T.UINT16, _T.INT8, _T.UINT8})
"""Types whose entries in ``int32_data`` are numbers, not bits."""


@dataclass(frozen=True)
class ExternalSpan:
    """Where a tensor's content lies outside the model's file."""

    location: str
    offset: int
    length: int | None


def elements_of(tensor: onnx.TensorProto) -> int:
    """Return the number of elements that ``tensor`` declares."""
    count = 1
    for dim in tensor.dims:
        count *= dim
    return count


def external_span(tensor: onnx.TensorProto, where: str) -> ExternalSpan:
    """Return where an external tensor's content lies, from its key-value pairs.

    Args:
        tensor: A tensor whose ``data_location`` is external.
        where: The tensor's place in the model, for messages.

    Raises:
        InvalidModelError: The location is missing or a number is malformed.
    """
    check_pairs(tensor.external_data, f"{where}: external data")
    pairs = {entry.key: entry.value for entry in tensor.external_data}
    if len(pairs) != len(tensor.external_data):
        raise InvalidModelError(f"{where}: a key of its external data occurs twice")
    if not pairs.get("location"):
        raise InvalidModelError(f"{where}: its external data names no file")
    offset = _natural(pairs.get("offset"), "offset", where)
    length = _natural(pairs.get("length"), "length", where)
    return ExternalSpan(pairs["location"], offset or 0, length)


def _natural(text: str | None, key: str, where: str) -> int | None:
    if text is None:
        return None
    # 18 digits fit 64 bits, and int() of a longer text takes quadratic time.
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise InvalidModelError(
            f"{where}: the {key} of its external data is {printable(text, 30)!r}, "
            "expected a number of bytes"
        )
    return int(text)


def check_tensor(
    tensor: onnx.TensorProto, where: str, limits: Limits, external_size: ExternalSize | None
) -> None:
    """Check that a tensor's type is known and that its content is as long as its shape says.

    Args:
        tensor: The tensor; its content is measured, not read.
        where: The tensor's place in the model, for messages.
        limits: Bounds on rank and size.
        external_size: Sizes of external files; None refuses external data.

    Raises:
        InvalidModelError: Type, shape and content contradict each other.
        ModelLimitError: The declared shape is beyond ``limits``.
        ModelFileError: External data cannot be read safely.
    """
    check_text((tensor.name, tensor.doc_string), where)
    check_pairs(tensor.metadata_props, where)
    data_type = tensor.data_type
    if data_type not in BITS and data_type != _T.STRING:
        raise InvalidModelError(f"{where}: data type {data_type} does not exist in ONNX")
    if tensor.HasField("segment"):
        raise InvalidModelError(f"{where}: segmented tensors are not supported")
    elements = _check_dims(tensor.dims, BITS.get(data_type, 8), where, limits)
    filled = [field for field in _DATA_FIELDS if getattr(tensor, field)]
    if tensor.data_location == _T.EXTERNAL:
        if filled:
            raise InvalidModelError(f"{where}: it has both inline and external data")
        _check_external(tensor, elements, where, external_size)
    elif len(filled) > 1:
        raise InvalidModelError(f"{where}: it has data in {' and '.join(filled)}, expected one")
    elif filled == ["raw_data"]:
        _check_raw(tensor, elements, where)
    else:
        _check_typed(tensor, elements, filled, where)


def _check_dims(dims: object, bits: int, where: str, limits: Limits) -> int:
    """Return the number of elements, refusing negative dimensions and sizes beyond the limit."""
    sizes = list(dims)  # type: ignore[call-overload]
    if len(sizes) > limits.rank:
        raise ModelLimitError(f"{where}: {len(sizes)} dimensions, at most {limits.rank} are safe")
    # A dimension of 0 must not hide what the others multiply to.
    elements = nonzero = 1
    for size in sizes:
        if size < 0:
            raise InvalidModelError(f"{where}: dimension {size} is negative")
        elements *= size
        nonzero *= size or 1
    if nonzero * bits > 8 * limits.tensor_bytes:
        raise ModelLimitError(
            f"{where}: shape {printable(sizes, 60)} takes {nonzero * bits // 8} bytes, "
            f"at most {limits.tensor_bytes} are safe"
        )
    return elements


def _check_external(
    tensor: onnx.TensorProto, elements: int, where: str, external_size: ExternalSize | None
) -> None:
    span = external_span(tensor, where)
    if tensor.data_type == _T.STRING:
        raise InvalidModelError(f"{where}: strings cannot be external data")
    if external_size is None:
        raise InvalidModelError(
            f"{where}: its data lies in the file {printable(span.location)!r}, which cannot be "
            "found from here: give the model's path, or load its external data first"
        )
    # Elements of 4 bits share bytes, and the last byte is filled up.
    needed = (elements * BITS[tensor.data_type] + 7) // 8
    if span.length is not None and span.length != needed:
        raise InvalidModelError(
            f"{where}: its shape takes {needed} bytes, but its external data has {span.length}"
        )
    available = external_size(span.location)
    if span.offset + needed > available:
        raise InvalidModelError(
            f"{where}: its external data ends at byte {span.offset + needed} of "
            f"{printable(span.location)!r}, which has {available}: the file may be truncated"
        )


def _check_raw(tensor: onnx.TensorProto, elements: int, where: str) -> None:
    if tensor.data_type == _T.STRING:
        raise InvalidModelError(f"{where}: strings cannot be raw data")
    needed = (elements * BITS[tensor.data_type] + 7) // 8
    size = len(tensor.raw_data)
    if size != needed:
        raise InvalidModelError(f"{where}: its shape takes {needed} bytes, but it holds {size}")


def _check_typed(tensor: onnx.TensorProto, elements: int, filled: list[str], where: str) -> None:
    field, per_element = _WIDE_FIELDS.get(tensor.data_type, ("int32_data", 1))
    if filled and filled != [field]:
        raise InvalidModelError(
            f"{where}: data of type {_T.DataType.Name(tensor.data_type)} is in {filled[0]}, "
            f"expected {field}"
        )
    _check_entries(tensor, where)
    bits = BITS.get(tensor.data_type, 8)
    # Smaller elements share an entry: two of 4 bits, four of 2 bits.
    needed = -(-elements * bits // 8) if bits in {2, 4} else elements * per_element
    entries = len(getattr(tensor, field))
    if entries != needed:
        raise InvalidModelError(
            f"{where}: its shape takes {needed} entries of {field}, but it holds {entries}"
        )


def _check_entries(tensor: onnx.TensorProto, where: str) -> None:
    """Refuse entries that are no bits of an element, as onnxruntime does; narrow integers wrap around there."""
    if tensor.data_type in _WRAPPING or not tensor.int32_data:
        return
    # Any other number than 0 is true to onnxruntime; here it must not look like 0 in its lowest byte.
    least = -128 if tensor.data_type == _T.BOOL else 0
    most = (1 << max(BITS.get(tensor.data_type, 32), 8)) - 1
    # The least and the largest entry are enough, and are found without a loop in Python.
    for number in (min(tensor.int32_data), max(tensor.int32_data)):
        if not least <= number <= most:
            raise InvalidModelError(
                f"{where}: an entry of its int32_data is {number}, expected {least} to {most}, the bits of "
                f"{_T.DataType.Name(tensor.data_type)}"
            )


def check_sparse_tensor(sparse: onnx.SparseTensorProto, where: str, limits: Limits) -> None:
    """Check a sparse tensor: values and indices inline, and not more of them than places.

    Raises:
        InvalidModelError: Values, indices and shape contradict each other.
        ModelLimitError: A declared shape is beyond ``limits``.
    """
    check_tensor(sparse.values, f"{where}: values", limits, None)
    check_tensor(sparse.indices, f"{where}: indices", limits, None)
    elements = _check_dims(sparse.dims, BITS.get(sparse.values.data_type, 8), where, limits)
    if len(sparse.values.dims) != 1:
        raise InvalidModelError(f"{where}: its values must have one dimension")
    count = sparse.values.dims[0]
    if sparse.indices.data_type != _T.INT64 or list(sparse.indices.dims) not in (
        [count],
        [count, len(sparse.dims)],
    ):
        raise InvalidModelError(f"{where}: its indices must be {count} places of type int64")
    # More values than places would have to repeat some.
    if count > elements:
        raise InvalidModelError(f"{where}: it holds {count} values for {elements} elements")


def check_type(
    declared: onnx.TypeProto, where: str, limits: Limits, *, depth: int = 0
) -> onnx.TypeProto.Tensor | None:
    """Check a declared type: known data types, possible shapes, limited nesting.

    Args:
        declared: The type of an input, an output or another value.
        where: The value's place in the model, for messages.
        limits: Bounds on rank, size and nesting.
        depth: Sequences and optionals around this type.

    Returns:
        The tensor type, or None if this is no plain tensor.

    Raises:
        InvalidModelError: A data type does not exist or a dimension is negative.
        ModelLimitError: Shape or nesting is beyond ``limits``.
    """
    if depth > limits.type_nesting:
        raise ModelLimitError(f"{where}: types nested more than {limits.type_nesting} deep")
    kind = declared.WhichOneof("value")
    if kind in {"tensor_type", "sparse_tensor_type"}:
        tensor = getattr(declared, kind)
        _check_tensor_type(tensor, where, limits)
        return tensor if kind == "tensor_type" else None
    if kind in {"sequence_type", "optional_type"}:
        inner = getattr(declared, kind).elem_type
        check_type(inner, where, limits, depth=depth + 1)
    elif kind == "map_type":
        check_type(declared.map_type.value_type, where, limits, depth=depth + 1)
    return None


def is_whole_type(declared: onnx.TypeProto) -> bool:
    """Return whether a type says what it is of down to the elements.

    Args:
        declared: A type of any nesting that ``check_type`` accepts.
    """
    kind = declared.WhichOneof("value")
    if kind in {"sequence_type", "optional_type"}:
        return is_whole_type(getattr(declared, kind or "").elem_type)
    if kind in {"tensor_type", "sparse_tensor_type"}:
        return bool(getattr(declared, kind or "").elem_type)
    return bool(kind == "map_type")  # which is refused later, with what to do


def _check_tensor_type(tensor: onnx.TypeProto.Tensor, where: str, limits: Limits) -> None:
    data_type = tensor.elem_type
    # A type may be left open where inference finds it.
    if data_type not in BITS and data_type not in {_T.STRING, _T.UNDEFINED}:
        raise InvalidModelError(f"{where}: data type {data_type} does not exist in ONNX")
    if not tensor.HasField("shape"):
        return
    # Some exporters write -1 for a dimension that they do not know.
    check_text((d.dim_param for d in tensor.shape.dim), where)
    known = [d.dim_value for d in tensor.shape.dim if d.HasField("dim_value") and d.dim_value != -1]
    _check_dims(known, BITS.get(data_type, 8), where, limits)
    if len(tensor.shape.dim) > limits.rank:
        raise ModelLimitError(f"{where}: more than {limits.rank} dimensions")
