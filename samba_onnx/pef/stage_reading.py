"""The nodes of the stages of an open PEF, read from its mapped files when somebody asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from samba_onnx.pef.archive import MemberSlot
from samba_onnx.pef.layout import WEIGHTS_MEMBER
from samba_onnx.pef.manifest import Manifest
from samba_onnx.pef.stage_graphs import StageGraphs

if TYPE_CHECKING:
    import onnx

__all__ = ["with_stages"]


def with_stages(
    manifest: Manifest, content: memoryview, slots: Mapping[str, MemberSlot]
) -> Manifest:
    """Return a manifest that gives the nodes of its stages.

    Args:
        manifest: What was read of the file.
        content: The whole file, which stays mapped as long as the manifest is kept.
        slots: Where its members lie, by name.
    """
    # Of the mapping, not of the PEF: that would hold itself through its manifest, and stay until it is collected.
    stages = manifest.stages()
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    weights = slots[WEIGHTS_MEMBER]

    def read(number: int) -> onnx.ModelProto:
        # Here, not above: whoever looks at a manifest only does not wait for onnx.
        from samba_onnx.pef.stage_checks import parse_stage

        slot, size = slots[stages[number].member], weights.end - weights.offset
        return parse_stage(bytes(content[slot.offset : slot.end]), stages[number], symbols, size)

    return replace(manifest, stage_graphs=StageGraphs.of_models(read))
