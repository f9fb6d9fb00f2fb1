"""What the device has to know about an optimizer: frozen records that a PEF can carry."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NoReturn

from samba_onnx.errors import PefFormatError
from samba_onnx.facts.names import joined

MASTER: Final = "master"
"""Key of an optimizer's state that is the float32 copy of a weight of low precision."""


class OptimizerKind(enum.StrEnum):
    """The update rule, as torch.optim names it."""

    SGD = "SGD"
    ADAM = "Adam"
    ADAMW = "AdamW"


class Flag(enum.StrEnum):
    """A choice that is built into the graph of an update, and that no run can change."""

    NESTEROV = "nesterov"
    MAXIMIZE = "maximize"
    AMSGRAD = "amsgrad"


HYPERPARAMETERS: Final[Mapping[OptimizerKind, tuple[str, ...]]] = MappingProxyType(
    {
        OptimizerKind.SGD: ("lr", "momentum", "dampening", "weight_decay"),
        OptimizerKind.ADAM: ("lr", "beta1", "beta2", "eps", "weight_decay"),
        OptimizerKind.ADAMW: ("lr", "beta1", "beta2", "eps", "weight_decay"),
    }
)
"""By update rule, the names of the hyperparameters that a group of parameters has."""

FLAGS: Final[Mapping[OptimizerKind, tuple[Flag, ...]]] = MappingProxyType(
    {
        OptimizerKind.SGD: (Flag.NESTEROV, Flag.MAXIMIZE),
        OptimizerKind.ADAM: (Flag.MAXIMIZE, Flag.AMSGRAD),
        OptimizerKind.ADAMW: (Flag.MAXIMIZE, Flag.AMSGRAD),
    }
)
"""By update rule, the choices that it has."""


@dataclass(frozen=True)
class GroupRecord:
    """A group of an optimizer: parameters that share hyperparameters."""

    name: str
    """Name of the group, unique in its program; the names of its argins begin with it."""
    parameters: tuple[str, ...]
    """The ``sn_name`` of each parameter."""
    hyperparameters: Mapping[str, float]
    """The value that each of ``HYPERPARAMETERS`` had when the optimizer was described."""
    argin_region_name: str = ""
    """Prefix of the keys by which a run sets the group's hyperparameters."""
    flags: frozenset[Flag] = frozenset()
    """What the graph of the group's update does besides the plain rule."""


@dataclass(frozen=True)
class OptimizerRecord:
    """An optimizer as a PEF keeps it: its rule, and its groups with what they started with."""

    kind: OptimizerKind
    name: str
    """Name of the optimizer, unique in its program; names of what its groups share begin with it."""
    groups: tuple[GroupRecord, ...]
    max_grad_norm: float | None = None
    """Largest L2 norm of all gradients taken as one vector; None leaves gradients as they are."""
    fp32_params: bool = False
    """Whether weights of low precision have a float32 copy that is updated in their place."""
    argin_region_name: str = ""
    """Prefix of the key by which a run sets ``max_grad_norm``."""
    parameters: tuple[str, ...] = field(init=False)
    """Names of the parameters of all groups, in the order of the groups."""

    def __post_init__(self) -> None:
        names = tuple(name for group in self.groups for name in group.parameters)
        object.__setattr__(self, "parameters", names)


def state_keys(kind: OptimizerKind, flags: frozenset[Flag]) -> tuple[str, ...]:
    """Return torch's keys of the state that a parameter has on the device.

    Args:
        kind: The update rule.
        flags: Options of the parameter's group that are built into the update rule.

    Returns:
        The keys, without ``step``, which is the host's, and without ``MASTER``.
    """
    if kind is OptimizerKind.SGD:
        # Also without momentum when it was compiled: a run may set one.
        return ("momentum_buffer",)
    largest = ("max_exp_avg_sq",) if Flag.AMSGRAD in flags else ()
    return ("exp_avg", "exp_avg_sq", *largest)


def state_name(parameter: str, key: str) -> str:
    """Return the name of a state on the device.

    Args:
        parameter: The parameter's ``sn_name``.
        key: torch's key of the state.
    """
    return joined(parameter, key)


def to_json(record: OptimizerRecord) -> dict[str, Any]:
    """Return a record as a document of JSON.

    Args:
        record: The record of any optimizer.
    """
    return {
        "kind": str(record.kind),
        "name": record.name,
        "max_grad_norm": record.max_grad_norm,
        "fp32_params": record.fp32_params,
        "argin_region_name": record.argin_region_name,
        "groups": [
            {
                "name": group.name,
                "parameters": list(group.parameters),
                "hyperparameters": dict(group.hyperparameters),
                "argin_region_name": group.argin_region_name,
                "flags": sorted(map(str, group.flags)),
            }
            for group in record.groups
        ],
    }


def from_json(document: object) -> OptimizerRecord:
    """Return the record that a document of JSON describes.

    Args:
        document: The result of ``to_json``, after any number of trips through JSON text.

    Returns:
        A record that equals the one that ``to_json`` described.

    Raises:
        PefFormatError: The document is not one that ``to_json`` makes.
    """
    content = _mapping(document, "an optimizer")
    name = _text(content, "kind")
    if name not in list(OptimizerKind):
        _refuse(f"has an optimizer of unknown kind {name!r}")
    kind = OptimizerKind(name)
    norm = content.get("max_grad_norm")
    precise = content.get("fp32_params")
    if not isinstance(precise, bool):
        _refuse("does not say whether weights have a float32 copy")
    return OptimizerRecord(
        kind=kind,
        name=_text(content, "name"),
        groups=tuple(_group(kind, item) for item in _items(content, "groups")),
        max_grad_norm=None if norm is None else _number(norm, "max_grad_norm"),
        fp32_params=precise,
        argin_region_name=_text(content, "argin_region_name"),
    )


def _group(kind: OptimizerKind, document: object) -> GroupRecord:
    content = _mapping(document, "a group of an optimizer")
    values = _mapping(content.get("hyperparameters"), "the hyperparameters of an optimizer")
    if set(values) != set(HYPERPARAMETERS[kind]):
        _refuse(f"has {kind} with hyperparameters {', '.join(map(str, values))}")
    parameters = _items(content, "parameters")
    flags = _items(content, "flags")
    if not all(isinstance(name, str) for name in parameters):
        _refuse("has a parameter of an optimizer whose name is no text")
    if not all(flag in list(Flag) for flag in flags):
        _refuse(f"has an optimizer with unknown flags {flags}")
    return GroupRecord(
        name=_text(content, "name"),
        parameters=tuple(parameters),
        hyperparameters=MappingProxyType({k: _number(v, k) for k, v in values.items()}),
        argin_region_name=_text(content, "argin_region_name"),
        flags=frozenset(map(Flag, flags)),
    )


def _mapping(document: object, what: str) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        _refuse(f"has {type(document).__name__} where {what} should be")
    return document


def _items(content: Mapping[str, Any], key: str) -> list[Any]:
    items = content.get(key)
    if not isinstance(items, list):
        _refuse(f"has an optimizer without a list of {key}")
    return items


def _text(content: Mapping[str, Any], key: str) -> str:
    text = content.get(key)
    if not isinstance(text, str):
        _refuse(f"has an optimizer without {key}")
    return text


def _number(value: object, key: str) -> float:
    # True and False are integers to Python, and no numbers in JSON.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        _refuse(f"has an optimizer whose {key} is {value!r}")
    return float(value)


def _refuse(complaint: str) -> NoReturn:
    raise PefFormatError(f"the PEF {complaint}; compile the model again")
