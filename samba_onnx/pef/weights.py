"""Tensors in safetensors layout, aligned, and copied from their source without being loaded.

safetensors refuses holes between tensors, so alignment is filled with padding tensors named
``__padding__.<n>``. Large tensors come first: their sizes are mostly multiples of the alignment,
so that few paddings are needed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samba_onnx.errors import PefFormatError, UsageError
from samba_onnx.facts.dtypes import OPAQUE, SAFETENSORS_TYPES, tensor_element
from samba_onnx.pef.manifest import Stored
from samba_onnx.pef.packing import packed_bytes, unpack
from samba_onnx.pef.sources import Source, source_bytes, source_chunks
from samba_onnx.safety.files import printable

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "StoredTensor",
    "WeightEntry",
    "WeightsLayout",
    "encode_tensors",
    "lay_out_tensors",
    "lay_out_weights",
    "read_tensors",
    "tensor_array",
]

SMALL_ALIGNMENT = 64
"""A cache line, and the widest vector register: what the kernels' aligned loads need."""
LARGE_ALIGNMENT = 4096
"""A page: a large tensor shares no page with another, so that it can be prefetched, dropped or
cloned by the file system on its own. Costs at most 0.4 % of ``LARGE``."""
LARGE = 1 << 20
HEADER_LIMIT = 100_000_000
"""The largest header that the safetensors library reads."""
LARGEST_RANK = 64
"""The most dimensions that numpy can express."""
_PADDING = "__padding__."


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a safetensors member; ``offset`` counts from the member's first byte."""

    name: str
    type: str
    """ONNX's text form, ``tensor(float)``."""
    shape: tuple[int, ...]
    offset: int
    bytes: int

    @property
    def stored(self) -> Stored:
        """The range as the manifest expresses it."""
        return Stored(self.offset, self.bytes)


@dataclass(frozen=True)
class WeightEntry:
    """A tensor to be written, and where its bytes come from."""

    name: str
    type: str
    """ONNX's text form, ``tensor(float)``; no strings."""
    shape: tuple[int, ...]
    source: Source


@dataclass(frozen=True)
class TensorLayout:
    """Where tensors lie in a safetensors file, and the header that says so."""

    header: bytes
    """Length prefix included; its own length is a multiple of ``LARGE_ALIGNMENT``."""
    tensors: tuple[StoredTensor, ...]
    """In the order of the file."""
    paddings: tuple[Stored, ...]
    """Ranges of zeros."""
    bytes: int
    """Size of the whole."""


@dataclass(frozen=True)
class WeightsLayout:
    """Tensors laid out and ready to be written."""

    layout: TensorLayout
    stored: Mapping[str, Stored]
    """By name: what belongs into ``Symbol.stored``."""
    sources: Mapping[str, Source]

    @property
    def size(self) -> int:
        """Bytes in the whole."""
        return self.layout.bytes

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the content; a chunk may be overwritten when the next one is asked for.

        Raises:
            UsageError: A source yields another number of bytes than its entry needs.
            ModelFileError: A file region cannot be read.
        """
        yield self.layout.header
        position = len(self.layout.header)
        for tensor in self.layout.tensors:
            # Zeros up to the next tensor are what the header calls padding.
            yield bytes(tensor.offset - position)
            yield from source_chunks(self.sources[tensor.name], tensor)
            position = tensor.offset + tensor.bytes
        yield bytes(self.size - position)


def lay_out_weights(entries: Iterable[WeightEntry]) -> WeightsLayout:
    """Decide where every weight goes; reads no weight.

    Args:
        entries: In graph order. An entry that repeats a name is the same tensor, and is written
            once.

    Returns:
        The layout: offsets for the manifest, and what the writer needs.

    Raises:
        UsageError: A type has no fixed size, a source has the wrong size, or a name occurs with
            two types or shapes.
    """
    # Tied weights are one tensor: a second copy would cost its size and let them drift apart in
    # training.
    unique: dict[str, WeightEntry] = {}
    for entry in entries:
        first = unique.setdefault(entry.name, entry)
        if (first.type, first.shape) != (entry.type, entry.shape):
            raise UsageError(
                f"weight {entry.name!r} is {first.type} {list(first.shape)} and also "
                f"{entry.type} {list(entry.shape)}"
            )
    layout = lay_out_tensors([(e.name, e.type, e.shape) for e in unique.values()])
    for tensor in layout.tensors:
        source_size = source_bytes(unique[tensor.name].source, tensor.type)
        # Before a byte is written, where the size can be told without reading.
        if source_size is not None and source_size != tensor.bytes:
            raise UsageError(
                f"weight {tensor.name!r}: its source has {source_size} bytes, {tensor.type} "
                f"{list(tensor.shape)} needs {tensor.bytes}"
            )
    return WeightsLayout(
        layout,
        {tensor.name: tensor.stored for tensor in layout.tensors},
        {name: entry.source for name, entry in unique.items()},
    )


def encode_tensors(entries: Iterable[WeightEntry]) -> bytes:
    """Return small tensors as the bytes of a whole safetensors member."""
    return b"".join(bytes(chunk) for chunk in lay_out_weights(entries).chunks())


def lay_out_tensors(tensors: Sequence[tuple[str, str, tuple[int, ...]]]) -> TensorLayout:
    """Return the one layout for tensors given as (name, type, shape).

    Order: tensors of at least ``LARGE`` bytes as given, then the smaller ones as given, then
    those without elements by name. Laying out a layout's own tensors again changes nothing.

    Raises:
        UsageError: A type has no fixed size, or the header would pass ``HEADER_LIMIT``.
    """
    sized = [(name, kind, shape, _size(name, kind, shape)) for name, kind, shape in tensors]
    # Large ones first: most are multiples of a page already, and small ones then share pages only
    # with each other.
    large = [item for item in sized if item[3] >= LARGE]
    small = [item for item in sized if 0 < item[3] < LARGE]
    # Their offsets are all the same, so that only names can order them.
    empty = sorted(item for item in sized if item[3] == 0)
    relative: list[tuple[str, str, tuple[int, ...], int, int]] = []
    paddings: list[tuple[int, int]] = []
    position = 0
    for name, kind, shape, size in (*large, *small, *empty):
        alignment = LARGE_ALIGNMENT if size >= LARGE else SMALL_ALIGNMENT
        # A tensor without bytes needs no alignment, and must not cause a padding.
        gap = -position % alignment if size else 0
        if gap:
            paddings.append((position, gap))
            position += gap
        relative.append((name, kind, shape, position, size))
        position += size
    header = _header(relative, paddings)
    start = len(header)
    return TensorLayout(
        header,
        tuple(StoredTensor(n, k, shape, start + at, size) for n, k, shape, at, size in relative),
        tuple(Stored(start + at, gap) for at, gap in paddings),
        start + position,
    )


def shape_is_fixed(shape: Sequence[object]) -> bool:
    """Return whether every dimension is a whole number that a tensor can have."""
    # numpy takes no more dimensions, and onnxruntime counts in int64.
    return len(shape) <= LARGEST_RANK and all(
        type(dimension) is int and 0 <= dimension < 2**63 for dimension in shape
    )


def _size(name: str, type_text: str, shape: Sequence[int]) -> int:
    element = tensor_element(type_text)
    if element is None or not shape_is_fixed(shape):
        raise UsageError(f"{name!r}: {type_text} {list(shape)} has no fixed size")
    return packed_bytes(element, shape)


def _header(
    tensors: Iterable[tuple[str, str, tuple[int, ...], int, int]],
    paddings: Sequence[tuple[int, int]],
) -> bytes:
    """Return the length prefix and JSON, in the order of the file, padded with spaces."""
    types: dict[str, str] = {}
    entries: dict[str, dict[str, object]] = {}
    for name, kind, shape, offset, size in tensors:
        element = tensor_element(kind)
        assert element is not None
        key, listed = _escape(name), list(shape)
        # safetensors has no name for 4-bit and some 8-bit types. They are stored as bytes, with
        # type and shape in the metadata.
        if element.safetensors == OPAQUE and element.name != "uint8":
            types[key] = f"{kind} {listed}"
            listed = [size]
        entries[key] = _entry(element.safetensors, listed, offset, size)
    for number, (offset, size) in enumerate(paddings):
        entries[f"{_PADDING}{number}"] = _entry("U8", [size], offset, size)
    whole = {"__metadata__": types, **entries} if types else entries
    text = json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode()
    # Padded with spaces, as safetensors allows: content begins at a page.
    text += b" " * (-(8 + len(text)) % LARGE_ALIGNMENT)
    if len(text) > HEADER_LIMIT:
        raise UsageError(f"{len(entries)} tensors need a header of {len(text)} bytes")
    return struct.pack("<Q", len(text)) + text


def _entry(dtype: str, shape: list[int], offset: int, size: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}


def _escape(name: str) -> str:
    """Keep user names apart from ``__metadata__`` and the paddings: ``__x`` becomes ``___x``."""
    return "_" + name if name.startswith("__") else name


def read_tensors(content: memoryview, names: Sequence[str]) -> dict[str, StoredTensor]:
    """Return the tensors of a small safetensors member that holds exactly ``names``, in order.

    Args:
        content: The whole member.
        names: What it must hold.

    Returns:
        The tensors by name.

    Raises:
        PefFormatError: The header is damaged, names something else, or is not the one that
            ``lay_out_tensors`` makes; a padding is not zero.
    """
    try:
        (length,) = struct.unpack_from("<Q", content)
        # min, since the length comes from the file.
        listed = json.loads(bytes(content[8 : 8 + min(length, HEADER_LIMIT)]))
        described = listed.pop("__metadata__", {})
        tensors = [_read_entry(name, listed[_escape(name)], described) for name in names]
        # Only types and shapes are taken from the header. Offsets are computed again, so that none
        # can lead elsewhere.
        layout = lay_out_tensors(tensors)
    # Whatever a header of other JSON may raise on the way.
    except (struct.error, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise PefFormatError(f"a header does not describe the tensors {', '.join(names)}") from None
    check_layout(layout, content)
    return {tensor.name: tensor for tensor in layout.tensors}


def _read_entry(
    name: str, entry: dict[str, Any], described: dict[str, str]
) -> tuple[str, str, tuple[int, ...]]:
    key = _escape(name)
    if key in described:
        kind, _, text = described[key].partition(" ")
        shape = json.loads(text)
    else:
        kind, shape = SAFETENSORS_TYPES[str(entry["dtype"])].text, entry["shape"]
    return name, kind, tuple(shape)


def check_layout(layout: TensorLayout, content: memoryview) -> None:
    """Compare header, size and paddings of a member with its layout.

    Raises:
        PefFormatError: They differ.
    """
    if len(content) != layout.bytes or content[: len(layout.header)] != layout.header:
        raise PefFormatError("a safetensors header differs from the tensors that are declared")
    for padding in layout.paddings:
        # Bytes that nothing reads are where data could be hidden.
        if any(content[padding.offset : padding.offset + padding.bytes]):
            raise PefFormatError(f"the padding at byte {padding.offset} of tensors is not zero")


def tensor_array(content: memoryview, tensor: StoredTensor) -> np.ndarray:
    """Return a tensor as an array: a view, or a copy if several elements share a byte.

    Args:
        content: The member that the tensor lies in.
        tensor: Where it lies.

    Raises:
        PefFormatError: Its elements have no fixed size.
    """
    import numpy as np

    element = tensor_element(tensor.type)
    if element is None:
        raise PefFormatError(f"{printable(tensor.name)} has no fixed size")
    flat = np.frombuffer(content, np.uint8, tensor.bytes, tensor.offset)
    if element.packs:
        return unpack(flat, element, tensor.shape)
    return flat.view(element.numpy).reshape(tensor.shape)
