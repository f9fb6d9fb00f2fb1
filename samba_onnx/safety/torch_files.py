"""Tensors of files that ``torch.save`` wrote: found without torch, and without unpickling anything.

torch's own reader, told to make nothing but tensors, still makes what a file asks for: a compressed archive of
65 kB takes 5 GB, a storage of any declared size is allocated before its content is looked for. Here the file is
mapped, what it says of its tensors is checked against its size, and their bytes are read when they are used.

Two formats are known: the archive of torch 1.6 and newer, with the tensors' descriptions in ``data.pkl`` and a
member for the bytes of each storage; and the one before it, five pickles with the storages behind them.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from samba_onnx.errors import ModelFileError, ModelLimitError, UsageError
from samba_onnx.facts.dtypes import ELEMENT_TYPES
from samba_onnx.safety.archives import open_archive, stored_ranges
from samba_onnx.safety.files import mapped, open_regular, printable
from samba_onnx.safety.pickles import (
    MOST_BYTES,
    Called,
    Named,
    Persistent,
    described,
    looked_through,
)

Array = npt.NDArray[Any]

__all__ = ["read_torch_file", "require_harmless"]

_INNER: Final = ("model", "state_dict", "model_state_dict", "model_state", "module")
"""Under these keys programs put the ``state_dict`` of the model, beside that of the optimizer."""
_MAGIC: Final = 0x1950A86A20F9469CFC6C
"""The first pickle of a file in the format before torch 1.6."""
_RANK: Final = 64
"""Dimensions of an array that numpy can make."""
_LARGEST: Final = 1 << 48
"""The largest dimension or stride: beyond every file, and in bytes still an integer of numpy's."""
_STORAGES: Final[Mapping[str, str]] = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "uint8",
}  # fmt: skip
"""Types of elements by torch's classes of storages; newer types stand beside an untyped one."""
_DTYPES: Final = {element.dtype_name: element for element in ELEMENT_TYPES.values()}
_REBUILDS: Final = "torch._utils._rebuild_"
_WRAPPERS: Final[Mapping[str, int]] = {
    f"{_REBUILDS}parameter": 0,
    f"{_REBUILDS}parameter_with_state": 0,
    "torch._tensor._rebuild_from_type_v2": 2,
}
"""What is called with the description of a tensor, or its arguments: which argument that is."""


class _NoTensorError(ValueError):
    """A description is wrong, or of what has no counterpart here."""


@dataclass(frozen=True)
class _Storage:
    """The bytes that tensors are views of."""

    dtype: str
    offset: int
    """In the file."""
    elements: int


def read_torch_file(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read the ``state_dict`` of a file of ``torch.save``; nothing is unpickled, and torch is not needed.

    Args:
        path: A file that holds a ``state_dict``, or a dict that has one under ``model`` or ``state_dict``. What
            else it holds is passed over.

    Returns:
        Arrays by name, mapped from the file: read-only, and read when they are used.

    Raises:
        ModelFileError: The file cannot be read, is none of the kind, is damaged, or has tensors of a type
            without a counterpart.
        ModelLimitError: It is compressed, or describes more than its own size.
        UsageError: There is no ``state_dict`` in it.
    """
    name = printable(os.fspath(path))
    with open_regular(path, what="checkpoint", error=ModelFileError) as file:
        try:
            return _read(file, name)
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            if isinstance(error, UsageError | ModelFileError | ModelLimitError):
                raise  # some of ours are a ValueError as well
            raise ModelFileError(
                f"{name}: is no file of torch.save that can be read: {printable(error, 300)}; save "
                "model.state_dict() with torch.save, or as safetensors",
                path=path,
            ) from None


def require_harmless(content: bytes | memoryview, name: str) -> None:
    """Refuse a file of ``torch.save`` that torch's own reader, making tensors only, could not read within bounds.

    Args:
        content: The whole file.
        name: What it is called in messages.

    Raises:
        ModelFileError: It is none, or takes more than its own size.
        ModelLimitError: It is compressed.
    """
    try:
        with open_archive(io.BytesIO(content), name) as archive:
            ranges = stored_ranges(archive, memoryview(content))
        for member, (offset, size) in ranges.items():
            if member.endswith("/data.pkl"):
                found = looked_through(io.BytesIO(content[offset : offset + size]))
                # torch's reader lets a file call it, with a number of bytes to allocate.
                makes_more = any(each.endswith(".bytearray") for each in found.names)
                if found.other_keys or makes_more:
                    raise ModelFileError(f"{name}: would make more than tensors")
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        if isinstance(error, ModelFileError | ModelLimitError):
            raise
        message = f"{name}: cannot be read: {printable(error, 300)}"
        raise ModelFileError(message) from None


def _read(file: BinaryIO, name: str) -> dict[str, Array]:
    content = mapped(file)
    source = _archive(file, name, content) if zipfile.is_zipfile(file) else _old_file(file, content)
    arrays = {}
    for key, description in _state_dict(source.root, name):
        try:
            arrays[key] = source.array(description)
        except _NoTensorError as error:
            raise ModelFileError(f"{name}: {printable(key)!r}: {error}") from None
    return arrays


@dataclass(frozen=True)
class _Source:
    """A file whose instructions were looked through."""

    content: memoryview
    root: Any
    """What was saved."""
    places: Mapping[str, tuple[int, int]]
    """Offset and size in bytes of storages by their keys."""
    order: str = "<"
    """The order of bytes in numbers, as numpy says it."""

    def array(self, description: Called) -> Array:
        """Return the array that a description is of.

        Args:
            description: A call of one of torch's functions that make tensors.

        Raises:
            _NoTensorError: It is damaged, or no dense tensor of a type that arrays have.
        """
        function, arguments = _unwrapped(description)
        kind = function.name.removeprefix(_REBUILDS)
        if kind not in ("tensor", "tensor_v2", "tensor_v3"):
            raise _NoTensorError(f"a tensor made by {printable(function.name)} has no counterpart")
        if not isinstance(arguments, tuple) or len(arguments) < 4:
            raise _NoTensorError("its description is damaged")
        storage = self._storage(arguments[0], arguments[6] if kind == "tensor_v3" else None)
        (offset,) = _numbers(arguments[1:2])
        return self._view(storage, offset, _numbers(arguments[2]), _numbers(arguments[3]))

    def _storage(self, persistent: object, dtype: object) -> _Storage:
        identity = persistent.identity if isinstance(persistent, Persistent) else ()
        match identity:
            case ("storage", Named(kind), str() | int() as key, _, int() as elements, *more):
                kind = kind.rpartition(".")[2]
            case _:
                raise _NoTensorError("its description is damaged")
        place = self.places.get(str(key))
        if place is None or kind not in _STORAGES:
            raise _NoTensorError(
                f"its storage {printable(key)!r} is missing"
                if kind in _STORAGES
                else f"a {printable(kind)} has no counterpart"
            )
        named = dtype.name.rpartition(".")[2] if isinstance(dtype, Named) else _STORAGES[kind]
        if named not in _DTYPES:
            raise _NoTensorError(f"the type {printable(named)} has no counterpart")
        # torch counts in elements of the storage's own type, and here in those of the tensor.
        itemsize = _DTYPES[_STORAGES[kind]].numpy.itemsize
        begin, end = 0, elements
        match more:  # before torch 1.6, a storage could be a part of another one
            case [(_, int() as begin, int() as size)]:
                end = begin + size
        if not 0 <= begin <= end <= place[1] // itemsize:
            raise _NoTensorError(
                f"its storage has {place[1]} bytes, and {end * itemsize} are promised"
            )
        count = (end - begin) * itemsize // _DTYPES[named].numpy.itemsize
        return _Storage(named, place[0] + begin * itemsize, count)

    def _view(
        self, storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Array:
        dtype = _DTYPES[storage.dtype].numpy
        # Strides are not negative, so that the last element is the farthest.
        last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=False))
        # A tensor without elements needs none of its storage.
        end = offset + last + 1 if math.prod(shape) else 0
        if len(shape) != len(strides) or end > storage.elements:
            raise _NoTensorError(f"it ends at element {end} of a storage of {storage.elements}")
        # One element may be all of a tensor's, along axes that were expanded.
        if math.prod(shape) * dtype.itemsize > len(self.content):
            raise _NoTensorError(f"its shape {list(shape)} is larger than the whole file")
        # As bytes side by side first: what makes views knows no types of ml_dtypes.
        plain = np.dtype((np.void, dtype.itemsize))
        flat = np.frombuffer(self.content, plain, storage.elements, storage.offset)
        steps = [stride * dtype.itemsize for stride in strides]
        view = np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)
        view = view.view(dtype)
        # Files of big-endian machines; the copy is made unwritable like the views.
        if self.order == ">":
            view = view.byteswap()
            view.flags.writeable = False
        return view


def _unwrapped(description: Called) -> tuple[Named, Any]:
    """Return the function that makes a tensor, and its arguments, without what is around it."""
    function, arguments = description.function, description.arguments
    # Each is inside the one before, and no real file has more than two.
    for _ in range(4):
        place = _WRAPPERS.get(function.name) if isinstance(function, Named) else None
        if place is None or not isinstance(arguments, tuple) or len(arguments) <= place:
            break
        if place:
            function, arguments = arguments[0], arguments[place]
        elif isinstance(arguments[0], Called):
            function, arguments = arguments[0].function, arguments[0].arguments
    if not isinstance(function, Named):
        raise _NoTensorError("its description is damaged")
    return function, arguments


def _numbers(item: object) -> tuple[int, ...]:
    """Return what a shape or the strides of a tensor are.

    Raises:
        _NoTensorError: They are nothing that a tensor has.
    """
    if (
        not isinstance(item, tuple)
        or len(item) > _RANK
        or not all(type(number) is int and 0 <= number < _LARGEST for number in item)
    ):
        raise _NoTensorError("its shape is damaged")
    return item


def _archive(file: BinaryIO, name: str, content: memoryview) -> _Source:
    """Look through an archive of torch 1.6 or newer."""
    with open_archive(file, name) as archive:
        try:
            ranges = stored_ranges(archive, content)
        except ModelLimitError as error:
            raise ModelLimitError(f"{name}: {error}") from None
    # All members are in one folder, whose name is that of the file at the time.
    tops = [member.removesuffix("data.pkl") for member in ranges if member.endswith("/data.pkl")]
    # A model inside of a member's folder could have the same name; the outermost one is the file's
    # own.
    top = min(tops, key=len, default=None)
    if top is None:
        raise ValueError("it is an archive without data.pkl")
    offset, size = ranges[f"{top}data.pkl"]
    # The pickle is read into memory, unlike the storages.
    if size > MOST_BYTES:
        raise ValueError(f"its data.pkl takes more than {MOST_BYTES >> 20} MiB")
    begin, length = ranges.get(f"{top}byteorder", (0, 0))
    order = bytes(content[begin : begin + min(length, 8)])
    if order not in (b"", b"little", b"big"):
        raise ValueError(f"its byte order is {order!r}")
    data = f"{top}data/"
    return _Source(
        content,
        described(io.BytesIO(content[offset : offset + size])),
        {key.removeprefix(data): place for key, place in ranges.items() if key.startswith(data)},
        ">" if order == b"big" else "<",
    )


def _old_file(file: BinaryIO, content: memoryview) -> _Source:
    """Look through a file in the format before torch 1.6."""
    file.seek(0)
    try:
        begins = described(file) == _MAGIC
    except ValueError:
        begins = False
    if not begins:
        raise ValueError("it is neither an archive nor in the format before torch 1.6")
    described(file)  # the version of the protocol, of which there is one
    described(file)  # sizes of numbers on the machine that wrote it, which no file differs in
    found, keys = looked_through(file), described(file)
    itemsizes = {str(key): size for key, size in _itemsizes(found.persistent)}
    places, position = {}, file.tell()
    # Storages lie behind the pickles in the order of these keys.
    for key in keys if isinstance(keys, list) else ():
        # Eight bytes say how many elements follow.
        count = int.from_bytes(content[position : position + 8], "little")
        itemsize = itemsizes.get(key) if isinstance(key, str) else None
        position += 8
        if itemsize is None or position + count * itemsize > len(content):
            raise ValueError(f"its storage {printable(key)!r} is cut off, or belongs to no tensor")
        places[key] = position, count * itemsize
        position += count * itemsize
    return _Source(content, found.root, places)


def _itemsizes(identities: Iterable[Any]) -> Iterator[tuple[str | int, int]]:
    """Return the sizes of elements of all storages, also of those that no weight is in, as an optimizer's."""
    for identity in identities:
        match identity:
            case ("storage", Named(kind), str() | int() as key, *_):
                name = _STORAGES.get(kind.rpartition(".")[2])
                # A type without a counterpart is told of where it is needed; until then its size is.
                yield key, _DTYPES[name].numpy.itemsize if name else 1


def _state_dict(root: object, name: str) -> Iterator[tuple[str, Called]]:
    """Yield the descriptions of the tensors of a model by their names.

    Raises:
        UsageError: There is none.
    """
    outer = _entries(root)
    inner = [outer, *(_entries(outer.get(key)) for key in _INNER)]
    # Inner dicts before the outer one: a checkpoint of a training has tensors of its own beside the
    # model's.
    for candidate in reversed(inner):
        tensors = {
            key: value
            for key, value in candidate.items()
            if isinstance(value, Called) and _is_tensor(value)
        }
        if tensors:
            yield from tensors.items()
            return
    raise UsageError(
        f"{name} holds no state_dict: save model.state_dict(), alone or in a dict under 'model'; "
        "other objects are never unpickled"
    )


def _is_tensor(value: Called) -> bool:
    function = value.function
    return isinstance(function, Named) and (
        function.name in _WRAPPERS or function.name.startswith(_REBUILDS)
    )


def _entries(item: object) -> dict[str, Any]:
    """Return what a dict of any kind holds by texts; nothing if it is none."""
    if isinstance(item, dict):
        return item
    if not (isinstance(item, Called) and item.function == Named("collections.OrderedDict")):
        return {}
    entries: dict[str, Any] = {}
    # Pairs as an argument: how dicts were saved under Python 2.
    pairs = item.arguments[0] if isinstance(item.arguments, tuple) and item.arguments else ()
    for pair in pairs if isinstance(pairs, list | tuple) else ():
        if isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str):
            entries[pair[0]] = pair[1]
    return entries | item.items
