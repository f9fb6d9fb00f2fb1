"""Weights as a length and a direction, which are trained in their place."""

from __future__ import annotations

from typing import Final

import torch
from torch import nn
from torch.nn.utils import parametrize

from samba_onnx.errors import UsageError
from samba_onnx.tensor import SambaParameter

_WEIGHT: Final = "weight"
_PARTS: Final = {"original0": "magnitude", "original1": "direction"}
"""By torch's names of the parameters into which a weight is taken apart, SambaFlow's."""


class _Normalised(nn.Module):
    """Makes a weight of shape ``(outputs, ...)``, by the formula of torch's ``weight_norm``."""

    def forward(self, magnitude: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        # One number per output is divided, and not every element of the direction.
        return direction * (magnitude / _lengths(direction))

    def right_inverse(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return _lengths(weight), weight


def _lengths(weight: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm of what a weight has for every output, with as many axes as it has."""
    return weight.square().sum(dim=tuple(range(1, weight.dim())), keepdim=True).sqrt()


def weight_norm_(module: nn.Module) -> None:
    """Let a layer's weight be computed from its magnitude and its direction, in place.

    The two take the weight's place among the parameters: optimizers that are made afterwards train
    them. They are named ``<weight>_magnitude`` and ``<weight>_direction``, by which
    ``samba.session.get_tensors_by_name`` finds them (SambaNova's logistic regression starter). The
    computation is that of ``torch.nn.utils.parametrizations.weight_norm``: a magnitude for every
    output of the layer.

    Args:
        module: A layer with a ``weight``, of a model that was converted.

    Raises:
        UsageError: It has no weight, or the weight was not converted, or is normalised already.
    """
    weight = dict(module.named_parameters(recurse=False)).get(_WEIGHT)
    if not isinstance(weight, SambaParameter):
        have = "no weight of its own" if weight is None else "a weight that was not converted"
        raise UsageError(
            f"weight_norm_ was given {type(module).__name__} with {have}; give a layer, after "
            "samba.from_torch_model_(model)"
        )
    setattr(module, _WEIGHT, nn.Parameter(weight.torch_tensor().detach(), weight.requires_grad))
    parametrize.register_parametrization(module, _WEIGHT, _Normalised())
    parts = module.parametrizations[_WEIGHT]  # type: ignore[index]
    for key, word in _PARTS.items():
        # torch makes plain parameters, and the device knows parameters by name.
        part = SambaParameter(getattr(parts, key), requires_grad=weight.requires_grad)
        part.sn_name = f"{weight.sn_name}_{word}"
        setattr(parts, key, part)
