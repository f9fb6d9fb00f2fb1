"""The members of a PEF: their names and their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from samba_onnx.errors import PefFormatError
from samba_onnx.pef.manifest import Fallback, Manifest, Section
from samba_onnx.safety.files import printable

__all__ = [
    "DIRECTORY_LIMIT",
    "MANIFEST_MEMBER",
    "REFERENCE_MEMBER",
    "WEIGHTS_MEMBER",
    "check_members",
    "check_sizes",
    "member_names",
    "stage_member",
]

WEIGHTS_MEMBER = "weights.safetensors"
REFERENCE_MEMBER = "reference.safetensors"
MANIFEST_MEMBER = "manifest.json"

DIRECTORY_LIMIT = 64 << 20
"""Largest directory of an archive: about 700 000 members."""
SMALL_MEMBERS_LIMIT = 2 << 30
"""Most bytes of all stages together, and of the reference sample: what protobuf can hold. These
members are hashed whenever a PEF is loaded, and a file with holes costs its maker nothing."""


def stage_member(stage: Section | Fallback) -> str:
    """Return the name of the member that holds a stage's ONNX model: ``stages/007_cpu.onnx``."""
    # Three digits put the members in order for people; more stages make longer names.
    kind = "cpu" if isinstance(stage, Fallback) else stage.type.value
    return f"stages/{stage.id:03d}_{kind}.onnx"


def member_names(manifest: Manifest) -> tuple[str, ...]:
    """Return every member but the manifest itself, in the order of the file."""
    stages = sorted(manifest.stages().items())
    reference = (REFERENCE_MEMBER,) if manifest.reference is not None else ()
    # Weights come first and the manifest last: the manifest has the digests of all others, and the
    # weights' offset does not depend on how many stages there are.
    return (WEIGHTS_MEMBER, *reference, *(stage_member(stage) for _, stage in stages))


def check_sizes(sizes: Iterable[tuple[str, int]]) -> None:
    """Check that the members other than the weights are small enough to be read on loading.

    Args:
        sizes: Name and size of every member.

    Raises:
        PefFormatError: They are not.
    """
    total = {"the stages": 0, "the reference sample": 0}
    for name, size in sizes:
        # Weights may be of any size, since they are mapped and not read.
        if name != WEIGHTS_MEMBER:
            total["the reference sample" if name == REFERENCE_MEMBER else "the stages"] += size
    for what, size in total.items():
        if size > SMALL_MEMBERS_LIMIT:
            raise PefFormatError(f"{what} take {size} bytes, more than {SMALL_MEMBERS_LIMIT}")


def check_members(manifest: Manifest, members: Sequence[tuple[str, int]]) -> None:
    """Check that the manifest, the archive and the format agree on the members.

    Args:
        manifest: What the file says of itself.
        members: Names and sizes in bytes of what is in it beside the manifest, in its order.

    Raises:
        PefFormatError: They do not.
    """
    names = tuple(name for name, _ in members)
    if tuple((member.name, member.bytes) for member in manifest.members) != tuple(members):
        raise PefFormatError("the members are not those that the manifest lists")
    check_sizes(members)
    expected = member_names(manifest)
    for name in set(names).difference(expected):
        raise PefFormatError(f"member {printable(name)} is unexpected")
    if names != expected:
        raise PefFormatError("members are missing or out of order")
