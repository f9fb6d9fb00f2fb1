"""Leave large inline weights in the file: rewrite the protobuf so that they become external data.

Parsing a ``ModelProto`` copies every weight inside. Here the file is walked field by field instead,
and each large ``raw_data`` is replaced by external data that states where in the file it lies. What
is left to parse is small, whatever the size of the weights, and cannot be a memory bomb of millions
of tiny messages either.
"""

from __future__ import annotations

from samba_onnx.errors import InvalidModelError, ModelLimitError

__all__ = ["LIFT_BYTES", "lift_weights"]

LIFT_BYTES = 16 << 10
"""Smaller content stays inline."""
MOST_FIELDS = 4_000_000
"""Entries of a graph, and of its nodes beyond ``LIFT_BYTES``; real models have some thousands."""
MOST_BYTES = (1 << 31) - 1
"""The most that protobuf parses."""

_MODEL, _GRAPH, _FUNCTION, _NODE, _ATTRIBUTE, _TENSOR = range(6)
_CHILDREN: dict[int, dict[int, int]] = {
    _MODEL: {7: _GRAPH, 25: _FUNCTION},
    _GRAPH: {1: _NODE, 5: _TENSOR},
    _FUNCTION: {7: _NODE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH},
}
"""Field numbers, from onnx.proto, of messages that can hold tensors."""
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_DEEPEST = 100
"""The nesting that protobuf itself accepts."""


def lift_weights(content: memoryview, location: str) -> bytes:
    """Return the message of a model without its large weights.

    Args:
        content: A serialised ``ModelProto``.
        location: What the external data of lifted tensors shall name.

    Returns:
        A serialised ``ModelProto``, equal but for tensors whose ``raw_data`` is ``LIFT_BYTES`` or
        larger: these have external data at ``location``, with the offset in ``content``.

    Raises:
        InvalidModelError: This is no protobuf message, or a truncated one.
        ModelLimitError: There are more entries than a real model has, or too much remains.
    """
    walker = _Walker(content, location)
    chunks = walker.rewrite(0, len(content), _MODEL, 0)
    size = len(content) if chunks is None else sum(map(len, chunks))
    if size > MOST_BYTES:
        raise ModelLimitError(
            f"{size} bytes remain without weights, protobuf allows {MOST_BYTES}: "
            "save the model with external data"
        )
    return content.tobytes() if chunks is None else b"".join(chunks)


class _Walker:
    """Walks a serialised message."""

    def __init__(self, content: memoryview, location: str) -> None:
        self._content = content
        self._location = location
        self._fields = 0

    def rewrite(self, start: int, end: int, message: int, depth: int) -> list[memoryview] | None:
        """Return the message between two offsets without large weights; None if it has none."""
        if message == _TENSOR:
            return self._rewrite_tensor(start, end)
        if depth > _DEEPEST:
            raise InvalidModelError(f"messages nested more than {_DEEPEST} deep")
        children = _CHILDREN[message]
        chunks: list[memoryview] = []
        kept = start
        for number, field, begin, stop in self._walk(start, end):
            if stop - begin < LIFT_BYTES or number not in children:
                continue
            inner = self.rewrite(begin, stop, children[number], depth + 1)
            if inner is not None:
                head = _varint(number << 3 | _LENGTH) + _varint(sum(map(len, inner)))
                chunks += [self._content[kept:field], memoryview(head), *inner]
                kept = stop
        return [*chunks, self._content[kept:end]] if chunks else None

    def _rewrite_tensor(self, start: int, end: int) -> list[memoryview] | None:
        raw = [entry for entry in self._walk(start, end) if entry[0] in {_RAW_DATA, _EXTERNAL_DATA}]
        if len(raw) != 1 or raw[0][0] != _RAW_DATA:
            return None
        _, field, begin, stop = raw[0]
        if stop - begin < LIFT_BYTES:
            return None
        pairs = {"location": self._location, "offset": str(begin), "length": str(stop - begin)}
        external = b"".join(
            _field(_EXTERNAL_DATA, _field(1, key.encode()) + _field(2, value.encode()))
            for key, value in pairs.items()
        )
        external += _varint(_DATA_LOCATION << 3 | _VARINT) + _varint(1)
        return [self._content[start:field], self._content[stop:end], memoryview(external)]

    def _walk(self, start: int, end: int) -> list[tuple[int, int, int, int]]:
        """List fields of bytes: number, offset of the field, and offsets of its content."""
        found: list[tuple[int, int, int, int]] = []
        position = start
        while position < end:
            self._fields += 1
            if self._fields > MOST_FIELDS:
                raise ModelLimitError(f"more than {MOST_FIELDS} entries, which no real model has")
            field = position
            tag, position = self._read_varint(position, end)
            wire = tag & 7
            if wire == _LENGTH:
                size, begin = self._read_varint(position, end)
                position = begin + size
                found.append((tag >> 3, field, begin, position))
            elif wire == _VARINT:
                _, position = self._read_varint(position, end)
            elif wire in {_FIXED32, _FIXED64}:
                position += 4 if wire == _FIXED32 else 8
            else:
                raise InvalidModelError(f"wrong field at byte {field}")
            if tag < 8 or position > end:
                raise InvalidModelError(f"wrong or truncated field at byte {field}")
        return found

    def _read_varint(self, position: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while position < end and shift < 70:
            byte = self._content[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
        raise InvalidModelError(f"wrong or truncated number at byte {position}")


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(len(content)) + content
