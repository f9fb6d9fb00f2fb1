"""Damaged and forged PEFs, every one of which must be refused."""

from __future__ import annotations

import gzip
import io
import os
import socket
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from samba_onnx.pef import encode_reference
from samba_onnx.pef.layout import MANIFEST_MEMBER, REFERENCE_MEMBER, WEIGHTS_MEMBER
from tests.pef.builders import SAMPLE, answer
from tests.pef.forging import Anatomy, assemble, dissect, forge
from tests.pef.hostile_manifests import CHANGES, hostile_texts
from tests.pef.hostile_stages import hostile_stages

Members = dict[str, bytes]


@dataclass(frozen=True)
class HostilePef:
    """A file that is no PEF."""

    name: str
    path: Path
    why: str


def hostile_pefs(folder: Path, good_pef: Path) -> Iterator[HostilePef]:
    """Write hostile files, one at a time.

    Args:
        folder: Where to; a file is removed when the next one is asked for.
        good_pef: The toy of ``builders.write_toy``, which they are made from.
    """
    anatomy = dissect(good_pef)
    kinds: tuple[tuple[str, Callable[[Anatomy], Iterator[tuple[str, bytes]]]], ...] = (
        ("cut off", _truncations),
        ("a byte changed", _flips),
        ("bytes added or removed", _insertions),
        ("another kind of file", _strangers),
        ("forged archive", _archives),
        ("forged manifest", _manifests),
        ("forged tensors", _tensors),
        ("forged stage", _stages),
    )
    for why, make in kinds:
        for number, (name, content) in enumerate(make(anatomy)):
            path = folder / f"{why.replace(' ', '_')}_{number}.pef"
            path.write_bytes(content)
            yield HostilePef(name, path, why)
            path.unlink()
    yield from _special_paths(folder, good_pef)


def _truncations(anatomy: Anatomy) -> Iterator[tuple[str, bytes]]:
    content = anatomy.content
    cuts = {0, 1, 3, 4, 30, len(content) // 2}
    for slot in anatomy.slots:
        cuts |= {slot.header_offset, slot.header_offset + 10, slot.header_offset + 30}
        cuts |= {slot.offset, slot.offset + slot.bytes // 2, slot.end - 1, slot.end}
    cuts |= {anatomy.directory.start + 20, anatomy.directory.stop - 1, anatomy.directory.stop}
    cuts |= {anatomy.directory.stop + step for step in (4, 10, 21, 22, 40)}
    cuts |= {len(content) - 64, len(content) - 1}
    for cut in sorted(cuts - {len(content)}):
        yield f"cut off at {cut}", content[:cut]


_LOCAL_FIELDS = (0, 4, 6, 8, 10, 12, 14, 18, 22, 26, 28, 30, 45)
_CENTRAL_FIELDS = (0, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 30, 32, 34, 36, 38, 42, 46)
_END_FIELDS = (0, 4, 6, 8, 10, 12, 16, 20, 22, 37, 39, 46, -1)


def _flips(anatomy: Anatomy) -> Iterator[tuple[str, bytes]]:
    places: set[int] = set()
    for slot in anatomy.slots:
        places |= {slot.header_offset + field for field in _LOCAL_FIELDS}
        places |= {slot.offset - 1, slot.offset, slot.offset + slot.bytes // 2, slot.end - 1}
    places |= {anatomy.directory.start + field for field in _CENTRAL_FIELDS}
    end = anatomy.directory.stop
    places |= {end + field if field >= 0 else len(anatomy.content) - 1 for field in _END_FIELDS}
    places |= {anatomy.slots[0].offset + step for step in (0, 7, 8, 100, 4096, 5296, 5300)}
    for place in sorted(places):
        changed = bytearray(anatomy.content)
        changed[place] ^= 0x20
        yield f"byte {place} changed", bytes(changed)


def _insertions(anatomy: Anatomy) -> Iterator[tuple[str, bytes]]:
    content = anatomy.content
    yield "byte at the end", content + b"\0"
    yield "line break at the end", content + b"\n"
    yield "page at the end", content + bytes(4096)
    yield "megabyte at the end", content + bytes(1 << 20)
    yield "text at the end", content + b"samba-onnx pef 1"
    yield "twice", content + content
    yield "script in front", b"#!/bin/sh\n" + content
    yield "page in front", bytes(4096) + content
    for slot in anatomy.slots[1:]:
        for size in (1, 4096):
            at = slot.header_offset
            yield f"{size} bytes before {slot.name}", content[:at] + bytes(size) + content[at:]
    at = anatomy.directory.start
    yield "gap before the directory", content[:at] + bytes(16) + content[at:]
    at = anatomy.directory.stop
    yield "gap behind the directory", content[:at] + bytes(16) + content[at:]
    yield "page missing", content[:4096] + content[8192:]
    yield "first member missing", content[anatomy.slots[1].header_offset :]


def _zip(anatomy: Anatomy, method: int, comment: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in (*anatomy.members.items(), (MANIFEST_MEMBER, anatomy.text)):
            file.writestr(name, content)
        file.comment = comment
    return buffer.getvalue()


def _strangers(anatomy: Anatomy) -> Iterator[tuple[str, bytes]]:
    model = onnx.load_model_from_string(anatomy.members["stages/000_FWD.onnx"])
    yield "empty", b""
    yield "one byte", b"P"
    yield "text", b"Not a PEF at all.\n" * 100
    yield "noise", bytes((n * n * 31 + n) % 251 for n in range(10_000))
    yield "zeros", bytes(1 << 16)
    yield "ONNX", model.SerializeToString()
    yield "safetensors", anatomy.members[WEIGHTS_MEMBER]
    yield "JSON", anatomy.text
    yield "gzip", gzip.compress(anatomy.content)
    yield "picture", b"\x89PNG\r\n\x1a\n" + bytes(1000)
    yield "magic only", b"PK\x03\x04"
    yield "empty zip", b"PK\x05\x06" + bytes(18)
    yield "zip of the members", _zip(anatomy, zipfile.ZIP_STORED)
    yield "deflated zip of the members", _zip(anatomy, zipfile.ZIP_DEFLATED)
    old_seal = anatomy.content[anatomy.directory.stop + 22 :]
    yield "zip with the seal", _zip(anatomy, zipfile.ZIP_STORED, old_seal)
    yield "seal only", b"PK\x03\x04" + old_seal
    for extent in (0, 1 << 16, 0xFFFFFFFF):
        end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, extent, extent, len(old_seal))
        yield f"end with a directory at {extent}", b"PK\x03\x04" + end + old_seal
    yield "end with no directory", b"PK\x03\x04" + b"PK\x05\x06" + bytes(18) + old_seal


def _patch(at: int, form: str, value: int) -> Callable[[bytes], bytes]:
    def patch(directory: bytes) -> bytes:
        changed = bytearray(directory)
        struct.pack_into(form, changed, at, value)
        return bytes(changed)

    return patch


def _archives(anatomy: Anatomy) -> Iterator[tuple[str, bytes]]:
    good = [*anatomy.members.items(), (MANIFEST_MEMBER, anatomy.text)]
    weights, stage = good[0], good[2]
    yield "no members", assemble([])
    yield "manifest only", assemble(good[-1:])
    yield "member twice", assemble([weights, *good])
    yield "manifest twice", assemble([good[-1], *good])
    yield "manifest first", assemble([good[-1], *good[:-1]])
    yield "order changed", assemble([good[1], good[0], *good[2:]])
    yield "stages exchanged", assemble([*good[:2], good[3], good[2], *good[4:]])
    for name in [member for member, _ in good[:-1]]:
        yield f"{name} missing", assemble([item for item in good if item[0] != name])
    names = ["/etc/passwd", "../x", "stages/../../x", "C:\\x", "..\\x", "x", "", "X.PY", "a\0b"]
    names += ["stages/", "stages/000_FWD.onnx ", "weights.safetensors\n", "a" * 5000]
    for name in names:
        yield f"extra member {name[:20]!r}", assemble([*good[:-1], (name, b"x"), good[-1]])
        renamed = [(name, stage[1]) if item is stage else item for item in good]
        yield f"member renamed {name[:20]!r}", assemble(renamed)
    fields = {"compressed": (10, "<H", 8), "encrypted": (8, "<H", 1), "dated": (12, "<H", 1)}
    fields |= {"UTF-8 flag": (8, "<H", 0x800), "CRC": (16, "<I", 1), "volume": (34, "<H", 1)}
    fields |= {"packed size": (20, "<I", 1), "permissions": (38, "<I", 0), "place": (42, "<I", 4)}
    fields |= {"version": (6, "<H", 99), "comment": (32, "<H", 4), "name": (28, "<H", 65535)}
    fields |= {"size": (24, "<I", 1 << 30), "vast size": (24, "<I", 0xFFFFFFFF)}
    for name, change in fields.items():
        yield f"directory: {name}", assemble(good, change_directory=_patch(*change))
    yield "directory cut", assemble(good, change_directory=lambda d: d[:-1])
    yield "directory with more", assemble(good, change_directory=lambda d: d + bytes(46))
    for version in (0, 2, 10, 999_999_999):
        yield f"sealed as version {version}", assemble(good, version=version)


def _manifests(anatomy: Anatomy) -> Iterator[tuple[str, bytes]]:
    for name, change in CHANGES.items():
        yield name, forge(anatomy, change)
    for name, text in hostile_texts(anatomy.text):
        yield name, assemble([*anatomy.members.items(), (MANIFEST_MEMBER, text)])


def _replaced(member: str, old: bytes, new: bytes) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        assert old in members[member]
        members[member] = members[member].replace(old, new, 1)

    return change


def _set(member: str, content: bytes) -> Callable[[Members], None]:
    return lambda members: members.update({member: content})


def _sample(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> bytes:
    return encode_reference([{"input": inputs, "output": outputs}])


def _tensors(anatomy: Anatomy) -> Iterator[tuple[str, bytes]]:
    weights, sample = WEIGHTS_MEMBER, REFERENCE_MEMBER
    good = anatomy.members[weights]
    padding_at = 4096 + 1200
    result = answer(SAMPLE)
    run = {"input": [SAMPLE], "output": [result]}
    changes: dict[str, Callable[[Members], None]] = {
        "other name": _replaced(weights, b'"w":', b'"v":'),
        "other dtype": _replaced(weights, b'"F32"', b'"I32"'),
        "other shape": _replaced(weights, b"[300]", b"[150]"),
        "other range": _replaced(weights, b"[0,1200]", b"[0,1196]"),
        "line break for a space": _replaced(weights, b"} ", b"}\n"),
        "header of vast length": _set(weights, struct.pack("<Q", 2**63) + good[8:]),
        "header of no length": _set(weights, bytes(8) + good[8:]),
        "something in the padding": _set(
            weights, good[:padding_at] + b"!" + good[padding_at + 1 :]
        ),
        "byte behind the last weight": _set(weights, good + b"\0"),
        "byte of the last weight missing": _set(weights, good[:-1]),
        "no weights": _set(weights, b""),
        "sample is no safetensors": _set(sample, b"x" * 5000),
        "sample is empty": _set(sample, b""),
        "sample without output": _set(sample, _sample([SAMPLE], [])),
        "sample with more": _set(sample, _sample([SAMPLE], [result, result])),
        "sample with more runs": _set(sample, encode_reference([run, run])),
        "sample of other shape": _set(sample, _sample([SAMPLE[:2]], [result])),
        "sample of other rank": _set(sample, _sample([SAMPLE.reshape(-1)], [result])),
        "sample of other type": _set(sample, _sample([SAMPLE.astype("f8")], [result])),
        "sample with fractional shape": _replaced(sample, b"[4,300]", b"[4.0,300]"),
        "sample with a shape of text": _replaced(sample, b"[4,300]", b'["4",300]'),
        "sample with a vast shape": _replaced(sample, b"[4,300]", b"[4e300,1]"),
        "sample of unknown dtype": _replaced(sample, b'"F32"', b'"F99"'),
        "sample of deep nesting": _set(
            sample, struct.pack("<Q", 200_000) + b"[" * 100_000 + b"]" * 100_000
        ),
        "sample of a list": _set(sample, struct.pack("<Q", 2) + b"[]" + bytes(4096)),
    }
    for name, change in changes.items():
        yield name, forge(anatomy, change_members=change)


def _stages(anatomy: Anatomy) -> Iterator[tuple[str, bytes]]:
    for name, member, content in hostile_stages(anatomy.members):
        yield name, forge(anatomy, change_members=_set(member, content))


def _special_paths(folder: Path, good_pef: Path) -> Iterator[HostilePef]:
    why = "no regular file"
    yield HostilePef("folder", folder, why)
    yield HostilePef("missing", folder / "missing.pef", why)
    yield HostilePef("below a file", good_pef / "x.pef", why)
    yield HostilePef("NUL in the path", folder / "a\0b.pef", why)
    yield HostilePef("name too long", folder / ("a" * 300), why)
    pipe, link, lost = folder / "pipe.pef", folder / "link.pef", folder / "lost.pef"
    os.mkfifo(pipe)
    link.symlink_to(good_pef)
    lost.symlink_to(folder / "nowhere")
    yield HostilePef("pipe", pipe, why)
    yield HostilePef("symbolic link", link, why)
    yield HostilePef("lost symbolic link", lost, why)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "s.pef"))  # the full path may be too long
        yield HostilePef("socket", folder / "s.pef", why)
    yield HostilePef("device that never ends", Path("/dev/zero"), why)
    yield HostilePef("device that is empty", Path("/dev/null"), why)
