"""What the host computes for an optimizer's step: the values of the scalars that sections read.

torch computes bias corrections and the like in Python's floats; so does this, and rounds once.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import SEPARATOR, joined
from samba_onnx.optim.records import (
    FLAGS,
    HYPERPARAMETERS,
    GroupRecord,
    OptimizerKind,
    OptimizerRecord,
)

HyperparameterValue: TypeAlias = float | Sequence[float]
"""One number, or two for ``betas``."""

MAX_GRAD_NORM: Final = "max_grad_norm"
"""Key of the largest norm of an optimizer's gradients, and the end of its argin's name."""

_BETAS: Final = ("beta1", "beta2")
_SEPARATORS: Final = ("_", "", SEPARATOR)
"""What may stand between a region's name and a hyperparameter's; listed keys have the first one."""
BELOW_ONE: Final = frozenset(_BETAS)
"""Hyperparameters that must be below 1: with 1, a bias correction divides by zero."""


@functools.lru_cache(4096)  # Every step of a program asks for the same ones.
def argin_name(owner: str, argin: str) -> str:
    """Return the name of an argin.

    Args:
        owner: Name of the group of parameters that the scalar is for; name of the optimizer for
            ``MAX_GRAD_NORM``, which all of its groups share.
        argin: The scalar's own name, as ``lr`` or ``step_size``.
    """
    return joined(owner, argin)


def hyperparameter_names(record: OptimizerRecord) -> tuple[str, ...]:
    """Return the keys by which a run sets an optimizer's hyperparameters.

    Args:
        record: The optimizer, as it was when the program was compiled.

    Returns:
        Each key once. With an ``argin_region_name`` keys begin with it and ``_``; they are also
        understood with ``__`` and with nothing in between.
    """
    names = [
        _key(group.argin_region_name, name)
        for group in record.groups
        for name in HYPERPARAMETERS[record.kind]
    ]
    if record.max_grad_norm is not None:
        names.append(_key(record.argin_region_name, MAX_GRAD_NORM))
    return tuple(dict.fromkeys(names))


def understands(record: OptimizerRecord, key: str) -> bool:
    """Return whether a key sets anything of an optimizer.

    Args:
        record: The optimizer, as it was when the program was compiled.
        key: A key of ``hyperparam_dict``, in any of the ways in which it may be written.
    """
    # Two numbers, which ``betas`` needs; for all others it only counts that the key is known.
    probe: Mapping[str, HyperparameterValue] = {key: (0.0, 0.0)}
    names = (*HYPERPARAMETERS[record.kind], *FLAGS[record.kind])
    settings = (_setting(group, name, probe) for group in record.groups for name in names)
    clips = _setting(record, MAX_GRAD_NORM, probe)
    return clips is not None or any(setting is not None for setting in settings)


COMMON_KEYS: Final = frozenset(
    {MAX_GRAD_NORM, "betas"}
    | {name for names in HYPERPARAMETERS.values() for name in names}
    | {str(flag) for flags in FLAGS.values() for flag in flags}
)
"""Keys of all optimizers: programs send them to every graph, also where no optimizer has them."""


def derive(
    record: OptimizerRecord,
    hyperparameters: Mapping[str, HyperparameterValue],
    step: int | Sequence[int],
) -> dict[str, float]:
    """Compute the argins of one step.

    Args:
        record: The optimizer, as it was when the program was compiled.
        hyperparameters: Values by key, as ``hyperparameter_names`` lists them; ``betas`` sets both
            ``beta1`` and ``beta2``. A hyperparameter without a key here has the value of the
            record. Keys of other optimizers and of no optimizer have no effect.
        step: Number of the step that will be made, counted from 1, for all groups or one for each:
            of Adam's steps, or of SGD's steps with momentum.

    Returns:
        The value of every argin by name, in double precision.

    Raises:
        UsageError: A value is no number or out of range, would change the update rule that was
            compiled, or ``step`` is less than 1.
    """
    steps = [step] * len(record.groups) if isinstance(step, int) else step
    if any(number < 1 for number in steps):
        raise UsageError(f"step is {min(steps)}; steps are counted from 1")
    values: dict[str, float] = {}
    for group, number in zip(record.groups, steps, strict=True):
        current = _current(record.kind, group, hyperparameters)
        for argin, value in _ARGINS[record.kind](current, number):
            values[argin_name(group.name, argin)] = value
    norm = _largest_norm(record, hyperparameters)
    if norm is not None:
        values[argin_name(record.name, MAX_GRAD_NORM)] = norm
    return values


def steps_after(record: OptimizerRecord, done: Sequence[int]) -> tuple[int, ...]:
    """Return how many steps the state of each group stands for after one more.

    Args:
        record: The optimizer, with the hyperparameters of the step.
        done: The steps that the state of each group stood for before it.

    Returns:
        One more for each, but for a group of SGD whose momentum is 0 in this step: torch does not
        touch its state.
    """
    if record.kind is not OptimizerKind.SGD:
        return tuple([one + 1 for one in done])
    moves = [group.hyperparameters["momentum"] != 0 for group in record.groups]
    return tuple([one + moved for one, moved in zip(done, moves, strict=True)])


def refuse_new_clipping(
    records: Sequence[OptimizerRecord], hyperparameters: Mapping[str, HyperparameterValue]
) -> None:
    """Refuse a largest norm of gradients in a program that computes no norm.

    Args:
        records: The optimizers, as they were when the program was compiled.
        hyperparameters: Values by key.

    Raises:
        UsageError: There is such a key, and no optimizer clips.
    """
    for record in records:
        setting = _setting(record, MAX_GRAD_NORM, hyperparameters)
        if setting is not None and all(one.max_grad_norm is None for one in records):
            raise UsageError(
                f"{MAX_GRAD_NORM} is {setting}, but the program was compiled with "
                f"{record.kind} without it: make the optimizer with {MAX_GRAD_NORM} and compile "
                "again"
            )


def _largest_norm(
    record: OptimizerRecord, hyperparameters: Mapping[str, HyperparameterValue]
) -> float | None:
    """Return the largest norm of gradients in one step; None for a program that has no such limit."""
    if record.max_grad_norm is None:
        return None
    setting = _setting(record, MAX_GRAD_NORM, hyperparameters)
    return record.max_grad_norm if setting is None else _number(MAX_GRAD_NORM, setting)


def with_settings(
    record: OptimizerRecord, hyperparameters: Mapping[str, HyperparameterValue]
) -> OptimizerRecord:
    """Return a record whose values are those that a run sets, and its own where the run sets none.

    Args:
        record: The optimizer, with the hyperparameters that count so far.
        hyperparameters: Values by key, as for ``derive``.

    Raises:
        UsageError: A value is no number or out of range, or would change the update rule that was
            compiled.
    """
    if not hyperparameters:
        return record
    groups = tuple(
        dataclasses.replace(
            group,
            hyperparameters=MappingProxyType(_current(record.kind, group, hyperparameters)),
        )
        for group in record.groups
    )
    return dataclasses.replace(
        record, groups=groups, max_grad_norm=_largest_norm(record, hyperparameters)
    )


def _current(
    kind: OptimizerKind, group: GroupRecord, hyperparameters: Mapping[str, HyperparameterValue]
) -> Mapping[str, float]:
    """Return the hyperparameters of a group in one step: settings, or else the values at compiling."""
    if not hyperparameters:
        return group.hyperparameters
    _refuse_other_rule(kind, group, hyperparameters)
    current = dict(group.hyperparameters)
    for name in current:
        setting = _setting(group, name, hyperparameters)
        if setting is not None:
            current[name] = _number(name, setting)
    return current


def _refuse_other_rule(
    kind: OptimizerKind, group: GroupRecord, hyperparameters: Mapping[str, HyperparameterValue]
) -> None:
    """Refuse a choice that was made otherwise when the program was compiled."""
    for flag in FLAGS[kind]:
        setting = _setting(group, flag, hyperparameters)
        is_on = flag in group.flags
        if setting is not None and bool(setting) != is_on:
            raise UsageError(
                f"{flag} is {bool(setting)}, but the program was compiled with {flag}={is_on}: it "
                f"changes what {kind} computes, which no run can; make {kind} with "
                f"{flag}={not is_on} and compile again"
            )


def _setting(
    owner: GroupRecord | OptimizerRecord,
    name: str,
    hyperparameters: Mapping[str, HyperparameterValue],
) -> HyperparameterValue | None:
    """Return what a run sets a hyperparameter to, under any of its keys; None if it does not.

    The argin's own name goes before all others.
    """
    own = argin_name(owner.name, name)
    if own in hyperparameters:
        return hyperparameters[own]
    region = owner.argin_region_name
    for separator in _SEPARATORS if region else ("",):
        key = f"{region}{separator}{name}"
        if key in hyperparameters:
            return hyperparameters[key]
        if name in _BETAS and (betas := hyperparameters.get(f"{region}{separator}betas")):
            return _beta(betas, _BETAS.index(name))
    return None


def _beta(betas: HyperparameterValue, index: int) -> float:
    if not isinstance(betas, Sequence) or len(betas) != len(_BETAS):
        raise UsageError(f"betas is {betas!r}; give two numbers")
    return betas[index]


def _number(name: str, value: HyperparameterValue) -> float:
    """Return the number that a run sets a hyperparameter to, if it is in range."""
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever has a value: also tensors
    except (TypeError, ValueError):
        raise UsageError(f"hyperparameter {name} is {value!r}; give a number") from None
    if not math.isfinite(number) or number < 0:
        raise UsageError(f"hyperparameter {name} is {number}; give a number of at least 0")
    if name in BELOW_ONE and number >= 1:
        raise UsageError(f"hyperparameter {name} is {number}; give a number below 1")
    return number


def _key(region: str, name: str) -> str:
    return f"{region}_{name}" if region else name


_Values: TypeAlias = Iterator[tuple[str, float]]
"""Names of argins without their owner, and their values."""


def _sgd(current: Mapping[str, float], step: int) -> _Values:
    yield "lr", current["lr"]
    yield "weight_decay", current["weight_decay"]
    yield "momentum", current["momentum"]
    # torch's first buffer is the gradient itself, not dampened.
    yield "one_minus_dampening", 1.0 if step == 1 else 1 - current["dampening"]


def _moments(current: Mapping[str, float], step: int) -> _Values:
    beta1, beta2 = current["beta1"], current["beta2"]
    # torch divides sqrt(v) by this root and adds eps. Here both sides are multiplied by it, which
    # saves a pass over memory: step_size * m / (sqrt(v) + eps * root).
    root = math.sqrt(1 - beta2**step)
    yield "one_minus_beta1", 1 - beta1
    yield "beta2", beta2
    yield "one_minus_beta2", 1 - beta2
    yield "epsilon", current["eps"] * root
    yield "step_size", current["lr"] / (1 - beta1**step) * root


def _adam(current: Mapping[str, float], step: int) -> _Values:
    yield "weight_decay", current["weight_decay"]
    yield from _moments(current, step)


def _adamw(current: Mapping[str, float], step: int) -> _Values:
    # One factor, computed in Python's floats and rounded once: torch multiplies by it, too.
    yield "decay", 1 - current["lr"] * current["weight_decay"]
    yield from _moments(current, step)


_ARGINS: Final[Mapping[OptimizerKind, Callable[[Mapping[str, float], int], _Values]]] = (
    MappingProxyType(
        {OptimizerKind.SGD: _sgd, OptimizerKind.ADAM: _adam, OptimizerKind.ADAMW: _adamw}
    )
)
"""By update rule: the argins of a group in one step, from its hyperparameters in that step."""
