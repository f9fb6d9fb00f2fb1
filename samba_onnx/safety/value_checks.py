"""Attribute and constant values that would make native code divide by zero or misbehave."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

__all__ = ["Constants", "check_values"]


class Constants:
    """Small integer constants of the graphs around a node."""

    def __init__(self) -> None:
        self.known: dict[str, onnx.TensorProto | None] = {}

    def inside(self, shadowed: Iterable[str]) -> Constants:
        """Return a copy for a subgraph, in which ``shadowed`` names are no constants."""
        inner = Constants()
        inner.known = {**self.known, **dict.fromkeys(shadowed)}
        return inner

    def add_tensor(self, name: str, tensor: onnx.TensorProto) -> None:
        """Enter an initializer."""

    def add_node(self, node: onnx.NodeProto) -> None:
        """Enter the output of a Constant node."""


def check_values(node: onnx.NodeProto, constants: Constants) -> None:
    """Refuse values that trap."""
