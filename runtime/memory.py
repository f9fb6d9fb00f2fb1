"""Emulated device memory: named regions in tiers, and the tensors that live in them.

Every region is accounted for when the memory is set up, so that a program that does not fit is
refused before anything runs. The bytes behind a region are reserved when a section first uses
them: read-only weights are mapped from the PEF and never need any.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from samba_onnx.errors import ExecutionError, InternalError, OutOfDeviceMemoryError
from samba_onnx.facts.dtypes import ElementType, tensor_element
from samba_onnx.pef.manifest import Region, Symbol
from samba_onnx.pef.packing import packed_bytes
from samba_onnx.pef.target_summary import Tier
from samba_onnx.runtime.elements import (
    Array,
    from_items,
    is_native,
    storage_dtype,
    to_items,
)

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector register."""


@dataclass(frozen=True)
class TierUsage:
    """How full one tier of device memory is."""

    name: str
    used: int
    """Bytes of all regions in the tier."""
    capacity: int
    """Bytes that the tier has in all."""

    @property
    def free(self) -> int:
        """Bytes left."""
        return self.capacity - self.used


class DeviceTensor:
    """A tensor of fixed shape and type in device memory.

    Host code gets at its content only through :meth:`store` and :meth:`load`, which copy.
    """

    def __init__(self, symbol: Symbol, buffer: Array, *, batch: bool = False) -> None:
        """Lay the symbol over the first bytes of its region.

        Args:
            symbol: A symbol with a static shape and a tensor type.
            buffer: The region's bytes.
            batch: Whether the tensor is one of the mini-batches that the symbol holds, and not the
                whole; all the same for a symbol that is no batch.

        Raises:
            InternalError: The symbol has no static tensor type, or is larger than its region.
        """
        element, shape = static_type(symbol, batch=batch)
        size = packed_bytes(element, shape)
        if size > buffer.size:
            raise InternalError(
                f"symbol {symbol.name!r} takes {size} bytes, but its region {symbol.region!r} has "
                f"{buffer.size}; please report this"
            )
        self.symbol = symbol
        self.element = element
        self.shape = shape
        self._native = is_native(element)
        items = buffer[:size].view(storage_dtype(element))
        # Elements that share a byte have no array of the tensor's own shape.
        self._items = items if element.packs else items.reshape(shape)

    def store(self, array: Array) -> None:
        """Copy a host array to the device.

        Args:
            array: An array of the tensor's shape and ``element.numpy``.

        Raises:
            ExecutionError: The array has another shape: the model computed what it did not state.
        """
        if array.shape != self.shape:
            raise ExecutionError(
                f"value {self.symbol.name!r} has shape {list(array.shape)}, but the model states "
                f"{list(self.shape)} for it; convert the model again without that statement"
            )
        items = array if self._native else to_items(array, self.element)
        # Without casting: a value of another type here would have slipped through all checks.
        np.copyto(self._items, items, casting="no")

    def load(self) -> Array:
        """Return a fresh host array with a copy of the content."""
        if self._native:
            return self._items.copy()
        return from_items(self._items, self.element, self.shape)

    def storing(self) -> Callable[[Array], None]:
        """Return :meth:`store` for arrays whose shape and dtype were checked, made to be fast."""
        return functools.partial(self._items.__setitem__, ...) if self._native else self.store

    def loading(self) -> Callable[[], Array]:
        """Return :meth:`load`, made to be fast."""
        return self._items.copy if self._native else self.load

    @property
    def items(self) -> Array:
        """The content itself, as ``storage_dtype``; for whoever moves data over the link."""
        return self._items

    @property
    def address(self) -> int:
        """Where the content begins in this process's memory, for engines that bind to it."""
        return int(self._items.ctypes.data)


def static_type(symbol: Symbol, *, batch: bool = False) -> tuple[ElementType, tuple[int, ...]]:
    """Return element type and shape of a symbol that may live on the device.

    Args:
        symbol: Any symbol.
        batch: Whether the shape of one of its mini-batches is wanted, if it has several.

    Returns:
        Element type and shape.

    Raises:
        InternalError: The symbol is no tensor of numbers, or its shape is not known in full.
    """
    element = tensor_element(symbol.type)
    shape = symbol.stage_shape if batch else symbol.shape
    if element is None or shape is None:
        raise InternalError(
            f"symbol {symbol.name!r} of type {symbol.type} cannot live in device memory; "
            "please report this"
        )
    sizes = tuple(size for size in shape if isinstance(size, int))
    if len(sizes) != len(shape):
        raise InternalError(
            f"symbol {symbol.name!r} of shape {list(shape)} cannot live in device memory without "
            "a static shape; please report this"
        )
    return element, sizes


class DeviceMemory:
    """All regions of one device."""

    def __init__(
        self, tiers: Sequence[Tier], regions: Iterable[Region], symbols: Iterable[Symbol] = ()
    ) -> None:
        """Reserve the regions, in the order given.

        Args:
            tiers: The levels of memory that the target has, with their capacities.
            regions: What to reserve.
            symbols: What the regions hold.

        Raises:
            OutOfDeviceMemoryError: A region does not fit, or its tier does not exist.
        """
        self._tiers = {tier.name: tier for tier in tiers}
        self._used = dict.fromkeys(self._tiers, 0)
        self._regions: dict[str, Region] = {}
        self._buffers: dict[str, Array] = {}
        self._symbols = {symbol.name: symbol for symbol in symbols if symbol.region}
        self._tensors: dict[str, DeviceTensor] = {}
        self._wholes: dict[str, DeviceTensor] = {}
        self._stretches: dict[str, tuple[Array, int]] = {}
        """For regions that were laid together: the memory that they lie in, and where they begin."""
        for region in regions:
            self._reserve(region)

    def usage(self) -> tuple[TierUsage, ...]:
        """Return how full each tier is, in the target's order."""
        return tuple(
            TierUsage(tier.name, self._used[tier.name], tier.bytes) for tier in self._tiers.values()
        )

    def tensor(self, symbol: str) -> DeviceTensor:
        """Return the tensor of a symbol as sections see it; symbols of one region share its bytes.

        Of a symbol that holds mini-batches it is the one that is computed with now, on the chip:
        in a place of its own, that no tier accounts for.

        Args:
            symbol: Name of a symbol that has a region.

        Returns:
            The tensor, the same one on every call.

        Raises:
            InternalError: No region is known for the symbol.
        """
        tensor = self._tensors.get(symbol)
        if tensor is None:
            entry = self._symbols.get(symbol)
            batched = entry is not None and entry.batch_shape is not None
            tensor = self.private(symbol) if batched else self.whole(symbol)
            self._tensors[symbol] = tensor
        return tensor

    def whole(self, symbol: str) -> DeviceTensor:
        """Return the tensor of a symbol as the host sees it, with all mini-batches that it holds.

        Args:
            symbol: Name of a symbol that has a region.

        Returns:
            The tensor, the same one on every call; that of ``tensor`` for a symbol that is no batch.

        Raises:
            InternalError: No region is known for the symbol.
        """
        tensor = self._wholes.get(symbol)
        if tensor is None:
            entry = self._symbols.get(symbol)
            if entry is None or entry.region not in self._regions:
                raise InternalError(f"symbol {symbol!r} has no device region; please report this")
            tensor = DeviceTensor(entry, self._buffer(self._regions[entry.region]))
            self._wholes[symbol] = tensor
        return tensor

    def private(self, symbol: str) -> DeviceTensor:
        """Return a tensor like that of ``tensor``, in a place of its own that no tier accounts for.

        Args:
            symbol: Name of a symbol that has a region.
        """
        entry = self._symbols[symbol]
        size = packed_bytes(*static_type(entry, batch=True))
        return DeviceTensor(entry, _aligned(size), batch=True)

    def region(self, symbol: str) -> str:
        """Return the name of a symbol's region."""
        return self._symbols[symbol].region

    def lay_together(self, symbols: Sequence[str], more: int) -> None:
        """Let the regions of symbols lie side by side, so that all of them can be seen as one array.

        Args:
            symbols: Names of symbols with regions that nothing uses yet; others stay where they are.
            more: For how many numbers more, of up to eight bytes, there is room behind the last one.
        """
        regions = [self._regions[self._symbols[name].region] for name in symbols]
        fresh = [region for region in regions if region.name not in self._buffers]
        whole, begin = _aligned(sum(map(_aligned_bytes, fresh)) + 8 * more), 0
        for region in fresh:
            self._buffers[region.name] = whole[begin : begin + region.bytes]
            self._stretches[region.name] = whole, begin
            begin += _aligned_bytes(region)

    def stretch(self, symbols: Sequence[str], more: int) -> Array:
        """Return what neighbours hold as one array, with the few bytes that are between them.

        Args:
            symbols: Names that follow each other in one call of :meth:`lay_together`; of one type,
                whose elements share no bytes.
            more: As it was given to that call.

        Returns:
            One dimension, of the elements' type, in device memory; as many numbers more than there
            are, which belong to nobody if the last symbol is the last one of the call.
        """
        first, last = self._symbols[symbols[0]], self._symbols[symbols[-1]]
        whole, begin = self._stretches[first.region]
        other, last_begin = self._stretches[last.region]
        if other is not whole:
            raise InternalError(
                f"{first.name!r} and {last.name!r} do not lie side by side; please report this"
            )
        tensor = self.whole(last.name)
        end = last_begin + tensor.items.nbytes + more * tensor.items.itemsize
        return whole[begin:end].view(self.whole(first.name).element.numpy)

    def _reserve(self, region: Region) -> None:
        tier = self._tiers.get(region.tier)
        if tier is None:
            raise OutOfDeviceMemoryError(
                f"region {region.name!r} belongs in tier {region.tier!r}, which the target does not "
                f"have (it has {', '.join(self._tiers) or 'none'}); convert for this target again"
            )
        free = tier.bytes - self._used[tier.name]
        if region.bytes > free:
            raise OutOfDeviceMemoryError(self._overflow(region, tier, free))
        self._used[tier.name] += region.bytes
        self._regions[region.name] = region

    def _overflow(self, region: Region, tier: Tier, free: int) -> str:
        holds = [name for name, symbol in self._symbols.items() if symbol.region == region.name]
        owners = f" (symbol {', '.join(map(repr, holds[:3]))})" if holds else ""
        return (
            f"region {region.name!r}{owners} needs {region.bytes:,} bytes, but {free:,} of "
            f"{tier.bytes:,} bytes are free in {tier.name}; use smaller dimensions (--dim batch=1) "
            "or a target with more memory"
        )

    def _buffer(self, region: Region) -> Array:
        buffer = self._buffers.get(region.name)
        if buffer is None:
            buffer = _aligned(region.bytes)
            self._buffers[region.name] = buffer
        return buffer


def _aligned_bytes(region: Region) -> int:
    """Return the size of a region with what it takes for the next one to be aligned as well."""
    return region.bytes + -region.bytes % ALIGNMENT


def _aligned(size: int) -> Array:
    """Return zeros; they come as untouched pages from the system, and cost memory when used."""
    whole = np.zeros(size + ALIGNMENT, np.uint8)
    start = -whole.ctypes.data % ALIGNMENT
    return whole[start : start + size]


def release_free_memory() -> None:
    """Give memory that was freed back to the system, where the C library can be asked to.

    It keeps large blocks that lie below others: after weights were rewritten, as much as they take.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)
