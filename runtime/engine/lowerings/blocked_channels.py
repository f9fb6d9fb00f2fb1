"""Nodes of onnxruntime's blocked layout, in which channels lie in blocks, as a processor's vectors hold them.

``[batch, channels, *spatial]`` is stored as ``[batch, channels / block, *spatial, block]``; shapes say nothing of it. The
operators are those that onnxruntime's own optimizer writes for convolutions whose weights are constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from samba_onnx.facts.domains import BLOCKED_DOMAIN
from samba_onnx.runtime.engine.lowerings.nodes import Nodes, all_nodes

SPATIAL_AXES = 2
"""What the kernels have."""


class BlockedNodes(Nodes):
    """Nodes that take the place of one, some of which are of the blocked layout."""

    def blocked(self, value: str) -> str:
        """Bring a value into blocks.

        Args:
            value: ``[batch, channels, height, width]``, of whole blocks.
        """
        return self.make("ReorderInput", [value], domain=BLOCKED_DOMAIN)

    def convolution(self, operands: Sequence[str], channels: int, **attributes: Any) -> str:
        """Convolve; the result is not in blocks.

        Args:
            operands: Data in blocks, a weight in blocks, and maybe a bias.
            channels: Number of those of the result.
            **attributes: ``group``, ``kernel_shape``, ``pads`` and what else moves the window.
        """
        result = self.make("Conv", operands, domain=BLOCKED_DOMAIN, **attributes)
        return self.make("ReorderOutput", [result], domain=BLOCKED_DOMAIN, channels=channels)

    def finish(self, value: str, result: str) -> None:
        """Let the last node return the result.

        Args:
            value: What it makes.
            result: The name of the result.
        """
        assert self.nodes[-1].output[0] == value
        self.nodes[-1].output[0] = result


def import_blocks(model: onnx.ModelProto) -> None:
    """State the operator set of the blocked layout, if a model has nodes of it."""
    if any(node.domain == BLOCKED_DOMAIN for node in all_nodes(model.graph)):
        stated = {opset.domain for opset in model.opset_import}
        model.opset_import.extend(
            onnx.helper.make_opsetid(domain, 1) for domain in {BLOCKED_DOMAIN} - stated
        )
