"""The gradients that replicas combine: in which buckets, and what that moves.

A PEF is compiled for the batch of one replica; how many replicas there are is known when it runs. So
the reduction is no section of the PEF, and adds no id to its schedule: the runtime does it between
``BCKWD`` and what reads gradients, for as many replicas as there are, and nothing with one. What it
does follows from the manifest alone, by the rules of this module, so that all replicas do the same
in the same order, and it can be planned for any number of replicas before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.facts.names import gradient_name
from samba_onnx.pef.manifest import Cause, Direction, Graph, Manifest, Symbol, Transfer
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.program.kinds import SectionType, SymbolKind

__all__ = [
    "BUCKET_BYTES",
    "GradientBucket",
    "gradient_buckets",
    "host_transfer",
    "reduction_transfers",
    "ring_transfer",
]

BUCKET_BYTES: Final = 25 << 20
"""Gradients are reduced together up to this size: large enough for the network to be busy, and small
enough for the reduction of the first ones to begin long before the last ones are computed."""


@dataclass(frozen=True)
class GradientBucket:
    """Gradients of one type that are reduced in one go; they lie side by side in device memory."""

    index: int
    """Its place in the order of reduction."""
    symbols: tuple[str, ...]
    """The gradients, in the order in which the backward writes them and in which they lie."""
    call: int
    """The last call of the schedule that writes one of them."""

    @property
    def name(self) -> str:
        """What the ledger calls a copy of the whole bucket."""
        return f"gradients[{self.index}]"


def gradient_buckets(manifest: Manifest, graph: Graph) -> tuple[GradientBucket, ...]:
    """Return what replicas reduce of a graph: the gradients of weights that its backward writes.

    Gradients of inputs belong to the batch of one replica, and are not reduced.

    Args:
        manifest: What the PEF says about itself.
        graph: One of its graphs.

    Returns:
        The buckets in the order in which the backward completes them; none for a graph without
        backward.
    """
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    buckets: list[tuple[list[str], int]] = []
    current: dict[str, tuple[list[str], int]] = {}
    for name, call in _written(manifest, graph, symbols):
        symbol = symbols[name]
        # A size beyond the limit stands for "no bucket yet", so that the first gradient opens one.
        names, size = current.get(symbol.type, ([], BUCKET_BYTES + 1))
        # A gradient larger than a bucket gets one of its own.
        if size + (symbol.bytes or 0) > BUCKET_BYTES:
            names, size = [], 0
            buckets.append((names, call))
        names.append(name)
        current[symbol.type] = names, size + (symbol.bytes or 0)
        # A bucket can be reduced once its last gradient is there, which may be calls later.
        buckets = [(other, call if other is names else last) for other, last in buckets]
    # Types fill buckets side by side, so that these are not complete in the order in which they
    # began.
    ordered = sorted(buckets, key=lambda bucket: bucket[1])
    return tuple(GradientBucket(i, tuple(names), call) for i, (names, call) in enumerate(ordered))


def _written(
    manifest: Manifest, graph: Graph, symbols: dict[str, Symbol]
) -> Iterator[tuple[str, int]]:
    """Yield the gradients of weights with the last call that writes each, in the order of calls."""
    # Gradients that share a region are one, and are reduced once.
    regions: dict[str, str] = {}
    for symbol in manifest.symbols:
        gradient = symbols.get(gradient_name(symbol.name))
        if gradient is None or symbol.kind is not SymbolKind.WEIGHT:
            continue
        if gradient.kind is SymbolKind.GRADIENT and gradient.bytes:
            regions.setdefault(gradient.region, gradient.name)
    stages, last = manifest.stages(), dict[str, int]()
    for call in graph.calls:
        stage = stages[call.stage]
        for output in stage.outputs if stage.type is SectionType.BCKWD else ():
            name = regions.get(symbols[output].region)
            if name is not None:
                # Taken out first, as dict keeps the place of a key that is there: the order is that
                # of last writes.
                last.pop(name, None)
                last[name] = call.id
    yield from last.items()


def reduction_transfers(
    manifest: Manifest, graph: Graph, replicas: int, *, on_rdu: bool
) -> tuple[Transfer, ...]:
    """Return the copies that a whole training step of one replica makes for its reduction.

    They are made in all modes, in this order, besides the ``run_transfers`` of the graph. A fallback
    that reads a gradient which another fallback wrote has it copied from the device once more, for
    what the host knew of it is not what was reduced.

    Args:
        manifest: What the PEF says about itself.
        graph: The graph that trains.
        replicas: How many there are; a single one copies nothing.
        on_rdu: Whether the devices reduce among themselves (``reduce_on_rdu``), in a ring;
            otherwise each gradient is copied to the host, and its mean back.

    Returns:
        One transfer per bucket between devices; or one per gradient to the host, bucket by bucket,
        and then one per gradient from there. In spatial mapping, all of that for each mini-batch.
    """
    if replicas == 1:
        return ()
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    buckets, target = gradient_buckets(manifest, graph), manifest.target
    if on_rdu:
        moves = tuple(_planned_ring(bucket, symbols, replicas, target) for bucket in buckets)
    else:
        moves = tuple(
            host_transfer(name, symbols[name].bytes or 0, direction, bucket.call, target)
            for direction in (Direction.RDU_TO_HOST, Direction.HOST_TO_RDU)
            for bucket in buckets
            for name in bucket.symbols
        )
    return moves * (graph.spatial_batches or 1)


def _planned_ring(
    bucket: GradientBucket, symbols: dict[str, Symbol], replicas: int, target: TargetSummary
) -> Transfer:
    element = tensor_element(symbols[bucket.symbols[0]].type)
    assert element is not None, "gradients are tensors of numbers"
    sizes = (symbols[name].bytes or 0 for name in bucket.symbols)
    return ring_transfer(bucket, sizes, element.bits // 8, replicas, target)


def ring_transfer(
    bucket: GradientBucket,
    sizes: Iterable[int],
    item_bytes: int,
    replicas: int,
    target: TargetSummary,
) -> Transfer:
    """Return what one device sends to the next one of a ring while a bucket is reduced.

    The bucket is cut into as many chunks as there are replicas. Each device passes all chunks but
    one on to be added up, and then all but one of the means: 2 (N - 1) chunks, which the modelled
    time has one after the other, over the link between RDUs.

    Args:
        bucket: The bucket.
        sizes: Bytes of the gradients that are reduced.
        item_bytes: Bytes of one number.
        replicas: How many there are, at least 2.
        target: The device's figures.
    """
    items = sum(sizes) // item_bytes
    # Rounded up to whole numbers: chunks are added element by element.
    chunk = -(-items // replicas) * item_bytes
    steps = 2 * (replicas - 1)
    return Transfer(
        symbol=bucket.name,
        bytes=steps * chunk,
        direction=Direction.RDU_TO_RDU,
        cause=Cause.REDUCE,
        seconds=steps * target.exchange_seconds(chunk),
        call=bucket.call,
    )


def host_transfer(
    name: str, size: int, direction: Direction, call: int, target: TargetSummary
) -> Transfer:
    """Return the copy of a gradient to the host that reduces it, or of its mean from there.

    Args:
        name: The gradient.
        size: Its bytes.
        direction: Which way.
        call: The last call that writes its bucket.
        target: The device's figures.
    """
    seconds = target.transfer_seconds(size)
    return Transfer(name, size, direction, Cause.REDUCE, seconds, call)
