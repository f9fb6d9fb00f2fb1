"""From a record to a module with random weights, and its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from transformers import PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from models.initialization import spread_weights
from tests.architectures.record import SMALL, Architecture
from tests.architectures.tasks import Shapes, Task, draw, labels, shapes

_EXPERTS = "batched_mm"  # all experts compute: the others have sizes that depend on values


@dataclass(frozen=True)
class Example:
    """A module in evaluation mode, and what it is run on."""

    module: nn.Module
    inputs: Mapping[str, Any]
    """Keyword arguments of ``forward``."""

    def run(self, inputs: Mapping[str, Any] | None = None) -> Any:
        """Return what the module computes itself."""
        with torch.no_grad():
            return self.module(**(self.inputs if inputs is None else inputs))


def build(architecture: Architecture, seed: int = 0, *, training: bool = False) -> Example:
    """Return an architecture with random weights.

    No dropout drops anything.

    Args:
        architecture: The record.
        seed: The same seed gives the same weights and inputs.
        training: With labels, in training mode.
    """
    transformers.logging.set_verbosity_error()
    module = _module(architecture, configuration(architecture), seed)
    return Example(module.train(training), example_inputs(architecture, module, seed, training))


def example_inputs(
    architecture: Architecture, module: nn.Module, seed: int, training: bool = False
) -> dict[str, Any]:
    """Return keyword arguments of ``forward``.

    Args:
        architecture: The record.
        module: As ``build`` makes it.
        seed: The same seed gives the same values.
        training: With labels.
    """
    known = inspect.signature(module.forward).parameters
    drawn = draw(shapes(architecture.task, architecture.inputs), seed)
    inputs: dict[str, Any] = {name: value for name, value in drawn.items() if name in known}
    if training:
        inputs |= labels(architecture.task, inputs, seed)
    return {**inputs, **architecture.options}


def configuration(architecture: Architecture) -> PretrainedConfig:
    """Return the tiny configuration of an architecture."""
    kind = CONFIG_MAPPING[architecture.name]
    usual = kind()
    settings = {
        name: value
        for name, value in SMALL.items()
        if hasattr(usual, name) and fits(getattr(usual, name), value)
    }
    settings |= architecture.settings
    made = kind(**{name: value for name, value in settings.items() if value is not None})
    drop_nothing(made)
    return made


def fits(usual: Any, value: Any) -> bool:
    """Return whether a setting is of the kind that a configuration has: a list is no number.

    Args:
        usual: What the configuration has by itself.
        value: What it is to be set to.
    """
    if isinstance(usual, bool) or isinstance(value, bool):
        return isinstance(usual, bool) and isinstance(value, bool)
    return usual is None or isinstance(usual, int | float)


def drop_nothing(config: PretrainedConfig) -> None:
    """Let no dropout of a model, or of its parts, drop anything.

    Args:
        config: Of the model; it is changed.
    """
    for name, value in list(vars(config).items()):
        if isinstance(value, PretrainedConfig):
            drop_nothing(value)
        elif _draws(name) and isinstance(value, int | float) and not isinstance(value, bool):
            setattr(config, name, type(value)(0))
        elif _draws(name) and isinstance(value, list | tuple):
            setattr(config, name, [0.0] * len(value))


def _draws(name: str) -> bool:
    return "drop" in name or "jitter" in name or name in ("mask_time_prob", "mask_feature_prob")


def _module(architecture: Architecture, config: PretrainedConfig, seed: int) -> nn.Module:
    task = Task.FEATURES if architecture.task is Task.TEXT_FEATURES else architecture.task
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if architecture.model:
            module = getattr(transformers, architecture.model)._from_config(config)
        else:
            module = getattr(transformers, task).from_config(config)
    if hasattr(module, "set_experts_implementation"):
        module.set_experts_implementation(_EXPERTS)
    spread(module, seed)
    inputs = shapes(architecture.task, architecture.inputs)
    calibrate(module, inputs, architecture.options, seed)
    return module


def spread(module: nn.Module, seed: int) -> None:
    """Give all parameters values under which outputs depend on inputs."""
    spread_weights(module, seed)
    with torch.no_grad():
        for owner in module.modules():
            if isinstance(owner, nn.Dropout):
                owner.p = 0.0
            for name, parameter in owner.named_parameters(recurse=False):
                if parameter.ndim == 3 and "weight" not in name:
                    parameter.mul_(0.4)  # experts' matrices, which must not amplify


def calibrate(module: nn.Module, inputs: Shapes, options: Mapping[str, Any], seed: int) -> None:
    """Let batch norms have the statistics of activations.

    Args:
        module: In evaluation mode afterwards.
        inputs: Shapes of its inputs, of which eight samples are drawn.
        options: Other arguments of ``forward``.
        seed: Of the samples.
    """
    norms = [one for one in module.modules() if isinstance(one, _BatchNorm)]
    if not norms:
        return
    wide = {name: (8, *shape[1:]) for name, shape in inputs.items()}
    momenta = [norm.momentum for norm in norms]
    module.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()  # these alone: as a whole, some modules train only with labels
    known = inspect.signature(module.forward).parameters
    given = {name: value for name, value in draw(wide, seed + 2).items() if name in known}
    with torch.no_grad():
        module(**given, **options)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        assert norm.running_var is not None
        norm.running_var.clamp_(min=0.1 * float(norm.running_var.mean()))
    module.eval()


def tensors(value: Any) -> list[Tensor]:
    """Return the tensors of a nested structure, in order."""
    leaves = torch.utils._pytree.tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]
