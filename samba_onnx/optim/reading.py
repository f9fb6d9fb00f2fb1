"""Reading records off optimizers."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import joined
from samba_onnx.optim.records import Flag, GroupRecord, OptimizerKind, OptimizerRecord

# Every AdamW is an Adam to torch, so that it comes first.
_KINDS: Final = (
    (torch.optim.SGD, OptimizerKind.SGD),
    (torch.optim.AdamW, OptimizerKind.ADAMW),
    (torch.optim.Adam, OptimizerKind.ADAM),
)
_OWN_STEP: Final = "_samba_step"
"""Attribute of a step function that computes what torch's does."""


def optimizer_record(
    optimizer: torch.optim.Optimizer,
    index: int = 0,
    names: Mapping[str, torch.Tensor] | None = None,
) -> OptimizerRecord:
    """Describe an optimizer.

    Args:
        optimizer: One of this package, or torch's SGD, Adam or AdamW.
        index: Its position among the optimizers of the program, from 0; its name has it.
        names: Parameters by name; needed for parameters that are not SambaParameters, which have a
            name themselves.

    Returns:
        The record, with the hyperparameters that the optimizer has now.

    Raises:
        UsageError: The optimizer is of another kind, is differentiable, or has a parameter
            without a name.
    """
    kind = optimizer_kind(optimizer)
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise UsageError("a differentiable optimizer cannot be compiled: leave differentiable out")
    region = getattr(optimizer, "argin_region_name", "")
    name = f"optimizer{index}"
    groups = tuple(
        GroupRecord(
            name=joined(name, f"group{number}"),
            parameters=tuple(parameter_names(group["params"], names)),
            hyperparameters=MappingProxyType(group_hyperparameters(kind, group)),
            argin_region_name=group.get("argin_region_name", region),
            flags=frozenset(flag for flag in Flag if group.get(flag)),
        )
        for number, group in enumerate(optimizer.param_groups)
    )
    norm = getattr(optimizer, "max_grad_norm", None)
    return OptimizerRecord(
        kind=kind,
        name=name,
        groups=groups,
        max_grad_norm=None if norm is None else float(norm),
        fp32_params=bool(getattr(optimizer, "fp32_params", False)),
        argin_region_name=region,
    )


def optimizer_kind(optimizer: torch.optim.Optimizer) -> OptimizerKind:
    """Return the update rule of an optimizer.

    Args:
        optimizer: An optimizer of any class.

    Raises:
        UsageError: The device has no such rule.
    """
    for torch_class, kind in _KINDS:
        if isinstance(optimizer, torch_class) and _steps_like(optimizer, torch_class):
            # By this keyword torch's Adam computes what its AdamW does.
            decoupled = optimizer.defaults.get("decoupled_weight_decay")
            return OptimizerKind.ADAMW if decoupled else kind
    raise UsageError(
        f"{type(optimizer).__name__} cannot be compiled: use SGD, Adam or AdamW of "
        "samba_onnx.optim or of torch.optim"
    )


def parameter_names(
    parameters: Iterable[torch.Tensor], names: Mapping[str, torch.Tensor] | None = None
) -> list[str]:
    """Return the names of parameters.

    Args:
        parameters: The parameters of one group of an optimizer.
        names: Parameters by name; needed for parameters that are not SambaParameters, which have a
            name themselves.

    Returns:
        One name per parameter, in their order.

    Raises:
        UsageError: A parameter has no name.
    """
    names_by_id = {id(tensor): name for name, tensor in (names or {}).items()}
    result = []
    for parameter in parameters:
        name = names_by_id.get(id(parameter)) or getattr(parameter, "sn_name", "")
        if not name:
            raise UsageError(
                f"an optimizer has a parameter of shape {tuple(parameter.shape)} without a name: "
                "convert the model with samba.from_torch_model_ before making the optimizer"
            )
        result.append(name)
    return result


def _steps_like(optimizer: torch.optim.Optimizer, torch_class: type[torch.optim.Optimizer]) -> bool:
    """Return whether an optimizer steps as torch's class of its kind does.

    A subclass with a step of its own may compute anything; only this package's is known to compute
    what torch's does.
    """
    step = type(optimizer).step
    # Both see through what torch wraps around a step for its hooks: a wrapper has the attributes.
    return hasattr(step, _OWN_STEP) or inspect.unwrap(step) is inspect.unwrap(torch_class.step)


def group_hyperparameters(kind: OptimizerKind, group: Mapping[str, Any]) -> dict[str, float]:
    """Return the hyperparameters that a group has now, by the names of ``HYPERPARAMETERS``.

    Args:
        kind: The update rule of the optimizer.
        group: One of its ``param_groups``.
    """
    if kind is OptimizerKind.SGD:
        keys = ("lr", "momentum", "dampening", "weight_decay")
        return {key: float(group[key]) for key in keys}
    beta1, beta2 = group["betas"]
    values = {"lr": group["lr"], "beta1": beta1, "beta2": beta2}
    values |= {"eps": group["eps"], "weight_decay": group["weight_decay"]}
    return {key: float(value) for key, value in values.items()}
