"""The members of a PEF: their names and their order."""

from __future__ import annotations

from samba_onnx.runtime.pef.manifest import Fallback, Manifest, Section

__all__ = [
    "MANIFEST_MEMBER",
    "REFERENCE_MEMBER",
    "WEIGHTS_MEMBER",
    "member_names",
    "stage_member",
]

WEIGHTS_MEMBER = "weights.safetensors"
REFERENCE_MEMBER = "reference.safetensors"
MANIFEST_MEMBER = "manifest.json"


def stage_member(stage: Section | Fallback) -> str:
    """Return the name of the member that holds a stage's ONNX model: ``stages/007_cpu.onnx``."""
    kind = "cpu" if isinstance(stage, Fallback) else stage.type.value
    return f"stages/{stage.id:03d}_{kind}.onnx"


def member_names(manifest: Manifest) -> tuple[str, ...]:
    """Return every member but the manifest itself, in the order of the file."""
    stages = sorted(manifest.stages().items())
    reference = (REFERENCE_MEMBER,) if manifest.reference is not None else ()
    return (WEIGHTS_MEMBER, *reference, *(stage_member(stage) for _, stage in stages))
