"""Leave large inline weights in the file: rewrite the protobuf so that they become external data.

Parsing a ``ModelProto`` copies every weight inside. Here the file is walked field by field instead,
and each large ``raw_data`` is replaced by external data that states where in the file it lies. What
is left to parse is small, whatever the size of the weights, and cannot be a memory bomb of millions
of tiny messages either.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from samba_onnx.errors import InvalidModelError, ModelLimitError
from samba_onnx.safety.system import read_at

__all__ = ["LIFT_BYTES", "lift_weights"]

# Content of less is cheaper to copy than to describe.
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
_LONGEST_VARINT = 10
_WINDOW = 4096
_DEEPEST = 100
"""The nesting that protobuf itself accepts."""

_Chunk = tuple[int, int, bytes]
"""Start and end in the file; or 0, length and new content."""


def lift_weights(file: BinaryIO, location: str) -> bytes:
    """Return the message of a model without its large weights.

    Args:
        file: A regular file that holds a serialised ``ModelProto``. It is read in small pieces:
            to look into a mapping would make whole megabytes around each look resident.
        location: What the external data of lifted tensors shall name.

    Returns:
        A serialised ``ModelProto``, equal but for tensors whose ``raw_data`` is ``LIFT_BYTES`` or
        larger: these have external data at ``location``, with the offset in ``file``.

    Raises:
        InvalidModelError: This is no protobuf message, or a truncated one.
        ModelLimitError: There are more entries than a real model has, or too much remains.
    """
    walker = _Walker(file.fileno(), location)
    end = os.fstat(file.fileno()).st_size
    chunks = walker.rewrite(0, end, _MODEL, 0)
    size = end if chunks is None else sum(stop - start for start, stop, _ in chunks)
    if size > MOST_BYTES:
        raise ModelLimitError(
            f"{size} bytes remain without weights, protobuf allows {MOST_BYTES}: "
            "save the model with external data"
        )
    return b"".join(map(walker.content, [(0, end, b"")] if chunks is None else chunks))


class _Walker:
    """Walks a serialised message in a file."""

    def __init__(self, descriptor: int, location: str) -> None:
        self._descriptor = descriptor
        self._location = location
        self._fields = 0
        self._window = b""
        self._window_start = 0

    def content(self, chunk: _Chunk) -> bytes:
        """Return the bytes of a chunk."""
        start, stop, literal = chunk
        if literal:
            return literal
        pieces: list[bytes] = []
        while start < stop:
            pieces.append(read_at(self._descriptor, stop - start, start))
            if not pieces[-1]:
                raise InvalidModelError("the file became shorter while it was read")
            start += len(pieces[-1])
        return b"".join(pieces)

    def rewrite(self, start: int, end: int, message: int, depth: int) -> list[_Chunk] | None:
        """Return the message between two offsets without large weights; None if it has none."""
        if message == _TENSOR:
            return self._rewrite_tensor(start, end)
        if depth > _DEEPEST:
            raise InvalidModelError(f"messages nested more than {_DEEPEST} deep")
        children = _CHILDREN[message]
        chunks: list[_Chunk] = []
        kept = start
        for number, field, begin, stop in self._walk(start, end):
            # A message that is smaller as a whole can have no weight in it: its bytes are passed on
            # unread.
            if stop - begin < LIFT_BYTES or number not in children:
                continue
            inner = self.rewrite(begin, stop, children[number], depth + 1)
            if inner is not None:
                # Sizes of all messages around a weight change with it, so that their heads are
                # written anew.
                size = sum(stop - start for start, stop, _ in inner)
                head = _literal(_varint(number << 3 | _LENGTH) + _varint(size))
                chunks += [(kept, field, b""), head, *inner]
                kept = stop
        return [*chunks, (kept, end, b"")] if chunks else None

    def _rewrite_tensor(self, start: int, end: int) -> list[_Chunk] | None:
        raw = [entry for entry in self._walk(start, end) if entry[0] in {_RAW_DATA, _EXTERNAL_DATA}]
        # A tensor with external data, or with two contents, is none that this may make sense of;
        # the checks refuse it later.
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
        # At the end, since fields may come in any order, and the last of two data locations counts.
        return [(start, field, b""), (stop, end, b""), _literal(external)]

    def _walk(self, start: int, end: int) -> list[tuple[int, int, int, int]]:
        """List fields of bytes: number, offset of the field, and offsets of its content."""
        fields: list[tuple[int, int, int, int]] = []
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
                fields.append((tag >> 3, field, begin, position))
            elif wire == _VARINT:
                _, position = self._read_varint(position, end)
            elif wire in {_FIXED32, _FIXED64}:
                position += 4 if wire == _FIXED32 else 8
            else:
                raise InvalidModelError(f"wrong field at byte {field}")
            # Field numbers begin with 1, and content that reaches beyond its message would be read
            # as something else.
            if tag < 8 or position > end:
                raise InvalidModelError(f"wrong or truncated field at byte {field}")
        return fields

    def _read_varint(self, position: int, end: int) -> tuple[int, int]:
        """Return the number at an offset, and the offset behind it."""
        local = position - self._window_start
        # A window, as numbers are read one after the other: a system call for each byte would take
        # most of the time.
        if not 0 <= local <= len(self._window) - _LONGEST_VARINT:
            self._window = read_at(self._descriptor, _WINDOW, position)
            self._window_start, local = position, 0
        value = shift = 0
        # A number of more than 10 bytes is none that protobuf writes.
        for byte in self._window[local : local + min(_LONGEST_VARINT, end - position)]:
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
        raise InvalidModelError(f"wrong or truncated number at byte {position}")


def _literal(content: bytes) -> _Chunk:
    return (0, len(content), content)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(len(content)) + content
