"""What architectures are for: their heads, and the inputs and labels that these take."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

Shapes = Mapping[str, tuple[int, ...]]

BATCH: Final = 2
LENGTH: Final = 12
LABELS: Final = 5
"""Number of classes of every classifier."""

_FIRST_TOKEN: Final = 3  # those before are padding and the like
_TOKENS: Final = 96
_TOKEN_INPUTS: Final = frozenset({"inputs", "timesteps"})


class Task(StrEnum):
    """The class of ``transformers`` that makes a model with a head."""

    SEQUENCE = "AutoModelForSequenceClassification"
    MASKED = "AutoModelForMaskedLM"
    CAUSAL = "AutoModelForCausalLM"
    TRANSLATION = "AutoModelForSeq2SeqLM"
    IMAGE = "AutoModelForImageClassification"
    SEGMENTATION = "AutoModelForSemanticSegmentation"
    DEPTH = "AutoModelForDepthEstimation"
    DETECTION = "AutoModelForObjectDetection"
    VIDEO = "AutoModelForVideoClassification"
    SOUND = "AutoModelForAudioClassification"
    SPEECH = "AutoModelForSpeechSeq2Seq"
    FEATURES = "AutoModel"
    TEXT_FEATURES = "AutoModel for text"


_TEXT: Final[Shapes] = {"input_ids": (BATCH, LENGTH), "attention_mask": (BATCH, LENGTH)}
_IMAGE: Final[Shapes] = {"pixel_values": (BATCH, 3, 32, 32)}
_INPUTS: Final[Mapping[Task, Shapes]] = MappingProxyType(
    {
        Task.SEQUENCE: _TEXT,
        Task.MASKED: _TEXT,
        Task.CAUSAL: _TEXT,
        Task.TRANSLATION: {**_TEXT, "decoder_input_ids": (BATCH, 8)},
        Task.IMAGE: _IMAGE,
        Task.SEGMENTATION: _IMAGE,
        Task.DEPTH: _IMAGE,
        Task.DETECTION: _IMAGE,
        Task.VIDEO: {"pixel_values": (BATCH, 8, 3, 32, 32)},
        Task.SOUND: {"input_values": (BATCH, 1600)},
        Task.SPEECH: {"input_features": (BATCH, 16, 128), "decoder_input_ids": (BATCH, 8)},
        Task.FEATURES: _IMAGE,
        Task.TEXT_FEATURES: _TEXT,
    }
)
_CLASSIFIERS: Final = frozenset({Task.SEQUENCE, Task.IMAGE, Task.VIDEO, Task.SOUND})


def shapes(task: Task, given: Mapping[str, tuple[int, ...] | None]) -> Shapes:
    """Return the shapes of a model's inputs.

    Args:
        task: Of the model.
        given: Shapes of other inputs, or that differ; None for one that the model does not take.
    """
    merged = {**_INPUTS[task], **given}
    return {name: shape for name, shape in merged.items() if shape is not None}


def draw(inputs: Shapes, seed: int) -> dict[str, Tensor]:
    """Return random inputs.

    Args:
        inputs: Their shapes; names say what they are: identifiers of tokens, masks that end in
            padding, corners of boxes, or real numbers.
        seed: The same seed gives the same values.
    """
    generator = torch.Generator().manual_seed(seed)
    return {name: _draw(name, shape, generator) for name, shape in inputs.items()}


def labels(task: Task, inputs: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Return what a model with a head is trained to predict.

    Args:
        task: Of the model.
        inputs: As ``draw`` returns them.
        seed: The same seed gives the same values.
    """
    generator = torch.Generator().manual_seed(seed + 1)
    if task in _CLASSIFIERS:
        size = next(iter(inputs.values())).shape[:1]
        return {"labels": torch.randint(0, LABELS, size, generator=generator)}
    if task in (Task.SEGMENTATION, Task.DEPTH):
        images = inputs["pixel_values"].shape[-2:]
        if task is Task.DEPTH:
            return {"labels": torch.rand(BATCH, *images, generator=generator) + 0.5}
        return {"labels": torch.randint(0, LABELS, (BATCH, *images), generator=generator)}
    predicted = inputs.get("decoder_input_ids", inputs.get("input_ids"))
    if predicted is None:
        return {}
    if task is Task.CAUSAL:
        return {"labels": predicted.clone()}
    return {"labels": _draw("ids", tuple(predicted.shape), generator)}


def _draw(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if name.endswith("mask"):
        mask = torch.ones(shape, dtype=torch.int64)
        mask[-1, -2:] = 0
        return mask
    if name.endswith("ids") or name in _TOKEN_INPUTS:
        return torch.randint(_FIRST_TOKEN, _TOKENS, shape, generator=generator)
    if name == "bbox":
        return torch.randint(0, 60, shape, generator=generator).sort(-1).values
    return torch.randn(shape, generator=generator)
