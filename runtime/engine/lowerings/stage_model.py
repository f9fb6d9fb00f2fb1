"""The model of a stage while it is lowered, with what an engine must know beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import onnx

from samba_onnx.runtime.engine.overwriting import written_over
from samba_onnx.runtime.memory import DeviceMemory


@dataclass(frozen=True)
class Component:
    """Elementwise nodes that share no value with the rest of a graph but scalars."""

    model: onnx.ModelProto
    """The nodes on vectors of any length; equal components have equal models."""
    inputs: tuple[str, ...]
    """Names in the graph, by position in the model."""
    outputs: tuple[str, ...]
    """Names in the graph, by position in the model."""
    scalars: frozenset[str]
    """Inputs that have no dimensions."""
    shape: tuple[int, ...]
    """The shape of all other inputs and outputs."""


@dataclass
class StageModel:
    """What lowerings read and change."""

    model: onnx.ModelProto
    """Merged stages; without any node once all of them are in components."""
    memory: DeviceMemory | None = None
    """Where inputs and outputs live; None for a stage that takes and returns host values."""
    splits: bool = False
    """Whether elementwise arithmetic may be executed on its own, block by block."""
    keeps_bfloat16: bool = False
    """Whether bfloat16 is left to the engine's own kernels."""
    channel_block: int = 0
    """Channels that lie side by side in the layout of the engine's blocked convolutions; 0 if it has none."""
    components: tuple[Component, ...] = ()
    """What was taken out of the model, to be executed before it."""
    places: dict[str, str] = field(default_factory=dict)
    """For outputs that lowerings added: the symbol in whose memory each is written."""
    disabled_optimizers: tuple[str, ...] = ()
    """Optimizers of onnxruntime that would change what the model computes."""

    def overwriting(self) -> frozenset[str]:
        """Return the outputs that live where the model reads inputs; none on the host."""
        return frozenset() if self.memory is None else written_over(self.model, self.memory)


def on_model(lower: Callable[[onnx.ModelProto], object]) -> Callable[[StageModel], None]:
    """Return a lowering that needs to know of nothing but the model.

    Args:
        lower: Changes a model in place; why it left parts as they are, which it may return, is for
            its test.
    """

    def apply(stage: StageModel) -> None:
        lower(stage.model)

    return apply


def with_blocks(lower: Callable[[onnx.ModelProto, int], object]) -> Callable[[StageModel], None]:
    """Return a lowering that needs to know of the model, and of the engine's blocks of channels.

    Args:
        lower: As for :func:`on_model`.
    """

    def apply(stage: StageModel) -> None:
        lower(stage.model, stage.channel_block)

    return apply
