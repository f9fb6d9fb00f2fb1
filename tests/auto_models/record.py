"""One model that a class of ``AutoModel`` makes, and how it is built."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

from samba_onnx.compiling.torch.torch_models import TorchModel
from tests.architectures.building import calibrate, configuration, spread
from tests.architectures.catalogue import ARCHITECTURES
from tests.architectures.record import Architecture
from tests.architectures.tasks import Shapes, Task, draw

__all__ = ["Representative", "build"]

_SEED = 0


@dataclass(frozen=True)
class Representative:
    """A tiny model with random weights, made by a class of ``AutoModel``."""

    auto: str
    """The class."""
    kind: str
    """What ``transformers`` calls the type of model."""
    inputs: Shapes
    """Shapes of its inputs; names say what is drawn."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the configuration, on top of those that the catalogue of architectures has for the type."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Inputs of which not every number means something, as nested lists."""

    @property
    def name(self) -> str:
        """Class and type, as ``AutoModelForCausalLM/gpt2``."""
        return f"{self.auto}/{self.kind}"


def build(representative: Representative) -> TorchModel:
    """Return the model as a factory of a user's would: its cache on, its outputs in a ``ModelOutput``.

    Args:
        representative: The record.
    """
    transformers.logging.set_verbosity_error()
    known = ARCHITECTURES.get(representative.kind)
    settings = {**(known.settings if known else {}), **representative.settings}
    config = configuration(
        Architecture(representative.kind, "", Task.FEATURES, {"use_cache": None, **settings})
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        module = getattr(transformers, representative.auto).from_config(config).eval()
    spread(module, _SEED)
    calibrate(module, representative.inputs, {}, _SEED)
    names = inspect.signature(module.forward).parameters
    unknown = set(representative.inputs) - set(names)
    assert not unknown, f"{representative.name} does not take {unknown}"
    inputs = draw(representative.inputs, _SEED)
    inputs |= {name: torch.tensor(value) for name, value in representative.values.items()}
    token = getattr(config, "image_token_id", None)
    if token is not None:
        inputs["input_ids"][:, : _places(config)] = token
    return TorchModel(representative.name.replace("/", "-"), module, (), inputs)


def _places(config: Any) -> int:
    """Return how many tokens an image takes the places of: its patches."""
    sight = config.vision_config
    return int(sight.image_size // sight.patch_size) ** 2
