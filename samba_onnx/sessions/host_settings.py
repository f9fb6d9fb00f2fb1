"""What is set on an optimizer on the host after it was traced: by schedulers, or by the program."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from types import MappingProxyType, NoneType
from typing import Any, Final

from torch.optim import Optimizer

from samba_onnx.errors import UsageError
from samba_onnx.optim import BELOW_ONE, Flag, GroupRecord, OptimizerRecord, group_hyperparameters

_COMPILED: Final = (Flag.NESTEROV, Flag.MAXIMIZE, Flag.AMSGRAD)
"""Options that a program cannot switch."""
_KEYS: Final = ("lr", "momentum", "dampening", "weight_decay", "betas", "eps", *_COMPILED)
"""Keys of groups that count, of all kinds of optimizers."""
_NUMBERS: Final = (int, float, NoneType)
"""Types whose values never change."""
_CALLED: Final = "_opt_called"
"""Attribute by which torch's schedulers know that the optimizer made a step before they do."""


class HostSettings:
    """The groups of one optimizer, and how they were when they were looked at last.

    torch.optim.lr_scheduler and programs write into ``param_groups``. What they write counts from
    the next run on, until it is set anew there or by a run: the last one who sets a number wins.
    """

    def __init__(self, optimizer: Optimizer, record: OptimizerRecord) -> None:
        """Begin with how an optimizer is now.

        Args:
            optimizer: An optimizer that was traced.
            record: Its record, as traced.
        """
        self._optimizer = optimizer
        self._kind = record.kind
        self._flags = [group.flags for group in record.groups]
        self._sizes = [len(group.parameters) for group in record.groups]
        self._values = [
            group_hyperparameters(record.kind, group) for group in optimizer.param_groups
        ]
        # Only optimizers that clip gradients have the attribute.
        self._norm = getattr(optimizer, "max_grad_norm", None)
        self._seen: list[Any] | None = None
        """How the groups were when they were found to be in order."""

    def is_unchanged(self) -> bool:
        """Whether the groups are surely as they were when ``followed`` was called last."""
        return self._seen is not None and self._look() == self._seen

    def followed(self, record: OptimizerRecord) -> OptimizerRecord:
        """Return a record with the hyperparameters that were set on the host since the last call.

        Args:
            record: The optimizer with the hyperparameters that count so far.

        Raises:
            UsageError: What was set is no hyperparameter that a program can change, or out of range.
        """
        self._check_structure()
        groups = self._optimizer.param_groups
        values = [group_hyperparameters(self._kind, group) for group in groups]
        norm = getattr(self._optimizer, "max_grad_norm", None)
        # The same record, not an equal one: whoever derives scalars compares by identity.
        if values == self._values and norm == self._norm:
            self._seen = self._unchanging()
            return record
        new = tuple(
            _changed(group, before, after)
            for group, before, after in zip(record.groups, self._values, values, strict=True)
        )
        limit = record.max_grad_norm
        # A run may have set another limit than the host's, which stays unless the host's changed.
        if norm != self._norm:
            limit = _limit(limit, norm)
        self._values, self._norm, self._seen = values, norm, self._unchanging()
        return dataclasses.replace(record, groups=new, max_grad_norm=limit)

    def _look(self) -> list[Any]:
        """All that counts of the groups, as it is now."""
        looks: list[Any] = [getattr(self._optimizer, "max_grad_norm", None)]
        for group in self._optimizer.param_groups:
            looks.append(len(group["params"]))
            # get(): no kind of optimizer has all of these keys.
            looks += map(group.get, _KEYS)
        return looks

    def _unchanging(self) -> list[Any] | None:
        """The same to compare with later; None where a rate may change in place, as a tensor's."""
        looks = self._look()
        numbers = itertools.chain.from_iterable(
            look if isinstance(look, tuple) else (look,) for look in looks
        )
        return looks if all(isinstance(number, _NUMBERS) for number in numbers) else None

    def stepped(self) -> None:
        """Tell torch's schedulers that the optimizer made a step: without, they warn of their first."""
        setattr(self._optimizer, _CALLED, True)

    def _check_structure(self) -> None:
        """Refuse what the program that was compiled cannot do."""
        groups = self._optimizer.param_groups
        if [len(group["params"]) for group in groups] != self._sizes:
            raise UsageError(
                f"the groups of {type(self._optimizer).__name__} have other parameters than when it "
                "was traced: compile and trace the model again"
            )
        for group, flags in zip(groups, self._flags, strict=True):
            for flag in _COMPILED:
                if bool(group.get(flag)) != (flag in flags):
                    raise UsageError(
                        f"{flag} of {type(self._optimizer).__name__} is {group.get(flag)} now, but "
                        "it was compiled otherwise, and no run can change it: compile the model again"
                    )


def _changed(
    group: GroupRecord, before: Mapping[str, float], after: Mapping[str, float]
) -> GroupRecord:
    """Return a group with those values that are others than before."""
    changed = {name: value for name, value in after.items() if value != before[name]}
    for name, value in changed.items():
        # Schedules may overshoot, as torch's do: a rate below zero is a number like any other.
        if not math.isfinite(value) or (name in BELOW_ONE and not 0 <= value < 1):
            raise UsageError(
                f"{name} of an optimizer is {value} on the host, which no step can be made with: set "
                "it to a finite number" + (" from 0 to below 1" if name in BELOW_ONE else "")
            )
    values = MappingProxyType({**group.hyperparameters, **changed})
    return dataclasses.replace(group, hyperparameters=values)


def _limit(compiled: float | None, norm: float | None) -> float:
    """Return a largest norm that was set on the host, where the program has one."""
    if compiled is None or norm is None:
        raise UsageError(
            f"max_grad_norm is {norm} now, but the program was compiled "
            f"{'without' if compiled is None else 'with'} one: compile the model again"
        )
    return float(norm)
