"""Write a PEF: the same records and bytes always give the same file."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO

from samba_onnx.errors import InternalError, PefError
from samba_onnx.pef import archive
from samba_onnx.pef.codec import decode_manifest, encode_manifest
from samba_onnx.pef.consistency import check_manifest, weights_layout
from samba_onnx.pef.layout import (
    MANIFEST_MEMBER,
    REFERENCE_MEMBER,
    WEIGHTS_MEMBER,
    check_sizes,
    member_names,
)
from samba_onnx.pef.manifest import Manifest, Member
from samba_onnx.pef.weights import WeightsLayout
from samba_onnx.safety.files import atomic_output, printable

__all__ = ["write_pef"]

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


def write_pef(
    path: str | os.PathLike[str],
    manifest: Manifest,
    *,
    weights: WeightsLayout,
    stages: Mapping[str, bytes],
    reference: bytes | None = None,
    progress: Progress | None = None,
    review: Callable[[str], None] | None = None,
) -> Manifest:
    """Write a PEF; ``path`` then holds the new file, or after any failure what it held before.

    Args:
        path: Where to; an existing file is replaced in one step.
        manifest: The records; ``members`` is filled in here. The symbols' ``stored`` must be the
            ranges of ``weights``.
        weights: From ``lay_out_weights``.
        stages: The ONNX model of every section and fallback, by ``Stage.member``.
        reference: Member ``reference.safetensors``, exactly when ``manifest.reference`` is set.
        progress: Told how many bytes of how many are written.
        review: Called with the path of the whole file before that appears at ``path``; what it
            raises keeps it from appearing.

    Returns:
        The manifest as written.

    Raises:
        OutputError: The file cannot be written, or ``path`` is something else than a file.
        UsageError: A weight's source gives the wrong number of bytes.
        ModelFileError: A weight's file cannot be read.
        InternalError: The records contradict each other, so that no reader would accept them.
    """
    contents: dict[str, tuple[int, Iterable[bytes | memoryview]]] = {
        name: (len(content), (content,)) for name, content in stages.items()
    }
    # Chunks are produced while the file is written, so that weights are never in memory in whole.
    contents[WEIGHTS_MEMBER] = (weights.size, weights.chunks())
    if reference is not None:
        contents[REFERENCE_MEMBER] = (len(reference), (reference,))
    names = member_names(manifest)
    # Before the file is begun, which may take minutes.
    _check(manifest, weights, names, {name: size for name, (size, _) in contents.items()})
    with atomic_output(path) as file:
        written = _write(file, manifest, {name: contents[name] for name in names}, progress)
        if review is not None:
            file.flush()
            os.fsync(file.fileno())  # what is reviewed appears at once, with what the review writes
            review(file.name)
        return written


def _check(
    manifest: Manifest, weights: WeightsLayout, names: tuple[str, ...], sizes: Mapping[str, int]
) -> None:
    """Refuse to write what the reader would refuse to read."""
    differing = sorted(set(names).symmetric_difference(sizes))
    if differing:
        raise InternalError(f"missing or unexpected members: {printable(', '.join(differing))}")
    try:
        check_manifest(manifest)
        check_sizes(sizes.items())
        declared = weights_layout(manifest)
    except PefError as error:
        raise InternalError(f"this PEF would be refused: {error}") from None
    if declared != weights.layout:
        raise InternalError("the manifest's weights are not those that were laid out")


def _write(
    file: IO[bytes],
    manifest: Manifest,
    contents: Mapping[str, tuple[int, Iterable[bytes | memoryview]]],
    progress: Progress | None,
) -> Manifest:
    sizes = [(name, size) for name, (size, _) in contents.items()]
    total = sum(size for _, size in sizes)
    members: list[Member] = []
    crcs: list[int] = []
    done = 0
    for slot, (_, chunks) in zip(archive.place(sizes), contents.values(), strict=True):
        told = _telling(chunks, progress, done, total)
        crc, digest = _write_member(file, slot, told)
        members.append(Member(slot.name, slot.bytes, digest))
        crcs.append(crc)
        done += slot.bytes
    written = dataclasses.replace(manifest, members=tuple(members))
    text = encode_manifest(written)
    # The manifest is placed last because it holds the digests of what was written before it.
    slots = archive.place([*sizes, (MANIFEST_MEMBER, len(text))])
    crc, _ = _write_member(file, slots[-1], (text,))
    directory = archive.central_directory(slots, [*crcs, crc])
    seal = archive.seal_of(text, directory)
    file.write(directory + archive.end_of_archive(slots, directory, seal))
    # Read back instead of returned, so that the caller has what a reader will see.
    return decode_manifest(text)


def _telling(
    chunks: Iterable[bytes | memoryview], progress: Progress | None, done: int, total: int
) -> Iterator[bytes | memoryview]:
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        if progress is not None:
            progress(done, total)


def _write_member(
    file: IO[bytes], slot: archive.MemberSlot, chunks: Iterable[bytes | memoryview]
) -> tuple[int, str]:
    """Write header and content; return CRC and SHA-256 of what was written."""
    # A placeholder: zip has the CRC in front of content whose CRC is known only behind it. Going
    # back costs one seek, where a first pass would read the weights twice.
    file.write(archive.local_header(slot, 0))
    crc, sha = 0, hashlib.sha256()
    for chunk in chunks:
        crc = zlib.crc32(chunk, crc)
        sha.update(chunk)
        file.write(chunk)
    # A source that gave another number of bytes would move everything behind it.
    if file.tell() != slot.end:
        raise InternalError(f"member {slot.name} has {file.tell() - slot.offset} bytes")
    file.seek(slot.header_offset)
    file.write(archive.local_header(slot, crc))
    file.seek(slot.end)
    return crc, sha.hexdigest()
