"""Take a PEF apart and put it together again with every checksum right, whatever is inside."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from samba_onnx.pef import archive
from samba_onnx.pef.layout import MANIFEST_MEMBER

Tree = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Anatomy:
    """A good PEF in pieces."""

    content: bytes
    slots: tuple[archive.Slot, ...]
    directory: range
    """Absolute offsets of the directory's bytes."""

    @property
    def members(self) -> dict[str, bytes]:
        """Content of every member but the manifest."""
        return {s.name: self.content[s.offset : s.end] for s in self.slots[:-1]}

    @property
    def text(self) -> bytes:
        """The manifest."""
        return self.content[self.slots[-1].offset : self.slots[-1].end]

    @property
    def tree(self) -> Tree:
        """The manifest as JSON, to be changed at will."""
        tree: Tree = json.loads(self.text)
        return tree


def dissect(path: Path) -> Anatomy:
    """Take a good PEF apart."""
    content = path.read_bytes()
    offset, size = archive.find_directory(content[-archive.TAIL :], len(content))
    listings = archive.parse_directory(content[offset : offset + size])
    slots = archive.place((listing.name, listing.bytes) for listing in listings)
    return Anatomy(content, slots, range(offset, offset + size))


def canonical(tree: Tree) -> bytes:
    """Write a manifest as the format demands."""
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def listed(tree: Tree, members: dict[str, bytes]) -> Tree:
    """Return the manifest with sizes and checksums of these members."""
    records = [
        {"bytes": len(content), "name": name, "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in members.items()
    ]
    return {**tree, "members": records}


def seal(manifest: bytes, directory: bytes, version: int = 1) -> bytes:
    """Seal anything, with any version."""
    digest = hashlib.sha256(manifest + directory).hexdigest()
    return f"samba-onnx pef {version} sha256 {digest}".encode()


def assemble(
    members: Iterable[tuple[str, bytes]],
    *,
    version: int = 1,
    change_directory: Callable[[bytes], bytes] = lambda directory: directory,
) -> bytes:
    """Make an archive of any members; the last one counts as the manifest for the seal."""
    members = list(members)
    slots = archive.place((name, len(content)) for name, content in members)
    crcs = [zlib.crc32(content) for _, content in members]
    pieces = [
        archive.local_header(slot, crc) + content
        for slot, crc, (_, content) in zip(slots, crcs, members, strict=True)
    ]
    directory = change_directory(archive.central_directory(slots, crcs))
    last = seal(members[-1][1] if members else b"", directory, version)
    return b"".join(pieces) + directory + archive.end_of_archive(slots, directory, last)


def forge(
    anatomy: Anatomy,
    change_tree: Callable[[Tree], None] = lambda tree: None,
    change_members: Callable[[dict[str, bytes]], None] = lambda members: None,
) -> bytes:
    """Change the manifest, members, or both, and make every size, checksum and seal fit."""
    members = anatomy.members
    change_members(members)
    tree = listed(anatomy.tree, members)
    change_tree(tree)
    return assemble([*members.items(), (MANIFEST_MEMBER, canonical(tree))])
