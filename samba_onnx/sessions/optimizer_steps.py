"""The steps that optimizers make on the device."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import torch
from torch.optim import Optimizer

from samba_onnx.errors import UsageError
from samba_onnx.optim import (
    ROUNDING_STEPS,
    HyperparameterValue,
    OptimizerRecord,
    derive,
    hyperparameter_names,
    rounding_steps,
    steps_done,
    to_cpu,
    to_rdu,
    with_settings,
)
from samba_onnx.optim.argins import refuse_new_clipping, steps_after, understands
from samba_onnx.optim.records import OptimizerKind
from samba_onnx.sessions.host_settings import HostSettings

NO_SCALARS: Final[Mapping[str, float]] = MappingProxyType({})
"""The scalars of a run without a step."""
_COUNTS = "device_steps"
"""Attribute of an optimizer: steps that the state of each of its groups on the device stands for."""


class OptimizerSteps:
    """The optimizers of a program that is loaded."""

    def __init__(
        self, records: Sequence[OptimizerRecord] = (), optimizers: Sequence[Optimizer] = ()
    ) -> None:
        """Begin with what was traced.

        Args:
            records: What was compiled.
            optimizers: The same on the host; none if the model was traced without.
        """
        self._records = tuple(records)
        """The records with the hyperparameters of the last run that succeeded."""
        self._next = self._records
        """The same for the run that is being made."""
        self._setting: Mapping[str, HyperparameterValue] = {}
        """What that run sets; it is part of ``_next``."""
        self._optimizers = tuple(optimizers)
        pairs = zip(optimizers, records, strict=bool(optimizers))
        self._settings = tuple(HostSettings(one, record) for one, record in pairs)
        self._counts = self._known_counts() or [(0,) * len(record.groups) for record in records]
        self._uncounted: Sequence[OptimizerRecord] | None = None
        """Records by which a step was found to count nothing."""
        self._rounds = False
        self._rounded = [0] * len(self._records)
        """Steps of SGD that rounded at random, of each optimizer, where none is on the host."""
        self._scalars: Mapping[str, float | list[float]] = NO_SCALARS
        """The scalars of the last step: the same object while what they were derived from is the same."""
        self._derived_from: tuple[object, object, int] = (None, None, 0)

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys by which a run sets hyperparameters, as they are best written; each once."""
        listed = (key for record in self._records for key in hyperparameter_names(record))
        return tuple(dict.fromkeys(listed))

    def understands(self, key: str) -> bool:
        """Return whether a key sets anything of one of the optimizers.

        Args:
            key: A key of ``hyperparam_dict``.
        """
        return any(understands(record, key) for record in self._records)

    def argins(
        self, hyperparameters: Mapping[str, HyperparameterValue], step: bool, batches: int = 0
    ) -> Mapping[str, float | list[float]]:
        """Return the scalars of the next step, or of each step of the next run.

        What was set on the optimizers on the host since the last run counts, and what the run
        itself sets counts more.

        Args:
            hyperparameters: Values by key that this run sets.
            step: Whether the run makes a step; without, nothing reads the scalars.
            batches: Mini-batches of the run, which makes a step for each and gets a list of every
                scalar; 0 for a run that makes one step.

        Returns:
            Values by argin; the same object as long as none of them changes.

        Raises:
            UsageError: A value is out of range, or the optimizers cannot use it.
        """
        for settings in self._settings:
            # One look at plain numbers for each optimizer; all follow once any may have changed.
            if not settings.is_unchanged():
                self._follow()
                break
        # Programs set the same numbers in every run: to set them again changes nothing.
        if self._records is not self._next or hyperparameters != self._setting:
            refuse_new_clipping(self._records, hyperparameters)
            self._next = tuple(with_settings(record, hyperparameters) for record in self._records)
            self._setting = dict(hyperparameters)
        if not step:
            return NO_SCALARS
        self._counts = self._known_counts() or self._counts
        origin = self._next, self._counts, batches
        # Records by identity, counts by value: equal counts come in new lists.
        if self._derived_from[0] is not origin[0] or self._derived_from[1:] != origin[1:]:
            self._scalars, self._derived_from = self._derived(batches), origin
        return self._scalars

    def _derived(self, batches: int) -> Mapping[str, float | list[float]]:
        """Compute the scalars of the next step, or of as many steps as there are mini-batches."""
        scalars: dict[str, float | list[float]] = {}
        for record, counts in zip(self._next, self._counts, strict=True):
            if not batches:
                scalars |= derive(record, {}, [count + 1 for count in counts])
                continue
            for _ in range(batches):
                for name, number in derive(record, {}, [count + 1 for count in counts]).items():
                    scalars.setdefault(name, []).append(number)  # type: ignore[union-attr]
                # Each mini-batch makes a step, and Adam corrects its bias by the number of it.
                counts = steps_after(record, counts)
        return MappingProxyType(scalars)

    def _follow(self) -> None:
        """Take over what was set on the optimizers on the host."""
        pairs = zip(self._settings, self._records, strict=True)
        followed = tuple(settings.followed(record) for settings, record in pairs)
        if any(map(operator.is_not, followed, self._records)):
            self._records = followed

    def keep(self) -> None:
        """Note that the run succeeded whose hyperparameters were given last: they persist."""
        self._records = self._next

    def stepped(self, steps: int = 1) -> None:
        """Note that a run made steps, with the hyperparameters that were kept.

        Args:
            steps: How many.
        """
        # SGD without momentum counts no steps, now as before, as long as its hyperparameters stay.
        if self._records is not self._uncounted:
            self._count(steps)
        # Only where something rounds at random: a plain SGD has no count to keep.
        if self._rounds:
            self._set_rounded([count + steps for count in self.rounded])
        for settings in self._settings:
            settings.stepped()

    def _count(self, steps: int) -> None:
        after = self._counts
        for _ in range(steps):
            after = list(map(steps_after, self._records, after))
        if after == self._counts:
            self._uncounted = self._records
            return
        self._counts = after
        for optimizer, counts in zip(self._optimizers, after, strict=False):
            setattr(optimizer, _COUNTS, counts)

    def count_roundings(self) -> None:
        """Count steps of SGD, too: the program rounds at random, by other seeds in every step."""
        self._rounds = True

    def resume(self) -> None:
        """Note that the state on the device is that of the host, or will be."""
        for optimizer in self._optimizers:
            setattr(optimizer, _COUNTS, steps_done(optimizer))
            setattr(optimizer, ROUNDING_STEPS, rounding_steps(optimizer))
        self._counts = self._known_counts() or self._counts

    @property
    def counts(self) -> list[tuple[int, ...]]:
        """Steps that the state of each group of each optimizer on the device stands for."""
        return self._known_counts() or self._counts

    @property
    def rounded(self) -> list[int]:
        """Steps that rounded at random, of each optimizer that is an SGD; 0 for others."""
        known = [getattr(optimizer, ROUNDING_STEPS, 0) for optimizer in self._optimizers]
        return known or self._rounded

    def steps_of(self) -> dict[str, int]:
        """Return how many steps the state of each optimizer on the device stands for, by its name.

        Of Adam, the most of any of its groups. SGD's state does not count them: those since
        ``count_roundings``, and what a checkpoint says of earlier ones.
        """
        counts = zip(self._records, self.counts, self.rounded, strict=True)
        return {
            record.name: rounded if record.kind is OptimizerKind.SGD else max(steps, default=0)
            for record, steps, rounded in counts
        }

    def _set_rounded(self, counts: Sequence[int]) -> None:
        is_sgd = [record.kind is OptimizerKind.SGD for record in self._records]
        self._rounded = [one * counted for one, counted in zip(counts, is_sgd, strict=True)]
        for optimizer, count in zip(self._optimizers, self._rounded, strict=False):
            setattr(optimizer, ROUNDING_STEPS, count)

    def resume_from(self, counts: Sequence[tuple[int, ...]], rounded: Sequence[int]) -> None:
        """Note that the state on the device is another replica's.

        Args:
            counts: The steps that it stands for, as ``counts`` has them there.
            rounded: The steps of SGD among them, as ``rounded`` has them there.
        """
        self._set_rounded(rounded)
        self._counts = list(counts)
        for optimizer, steps in zip(self._optimizers, counts, strict=False):
            setattr(optimizer, _COUNTS, steps)

    def _known_counts(self) -> list[tuple[int, ...]]:
        return [device_steps(optimizer) for optimizer in self._optimizers]


def device_steps(optimizer: Optimizer) -> tuple[int, ...]:
    """Return how many steps the state of each group of an optimizer on the device stands for.

    Args:
        optimizer: An optimizer of torch, compiled or not.
    """
    counts: tuple[int, ...] = getattr(optimizer, _COUNTS, ())
    missing = len(optimizer.param_groups) - len(counts)
    return counts + (0,) * missing if missing else counts


def send_state(optimizer: Optimizer, names: Mapping[str, torch.Tensor]) -> None:
    """Copy an optimizer's state to the device.

    Args:
        optimizer: Any that was compiled.
        names: Parameters by name.
    """
    setattr(optimizer, _COUNTS, to_rdu(optimizer, names))


def fetch_state(optimizer: Optimizer, names: Mapping[str, torch.Tensor], inplace: bool) -> None:
    """Copy an optimizer's state from the device.

    Args:
        optimizer: Any that was compiled.
        names: Parameters by name.
        inplace: Write into the tensors that the state has.
    """
    to_cpu(optimizer, device_steps(optimizer), names, inplace=inplace)


def check_records(compiled: Sequence[OptimizerRecord], traced: Sequence[OptimizerRecord]) -> None:
    """Refuse optimizers that are not those of the PEF.

    Args:
        compiled: Records of the optimizers that the PEF was compiled with.
        traced: Optimizers that the user traces the program with.

    Raises:
        UsageError: They differ in number or kind, or in what no run can change.
    """
    had, has = (list(map(_described, records)) for records in (compiled, traced))
    # Without optimizers a program may still run, with those that the PEF knows.
    if has and had != has:
        raise UsageError(
            f"the PEF was compiled with {', '.join(had) or 'no optimizer'}; it was traced with "
            f"{', '.join(has)}: give the same optimizers"
        )


def _described(record: OptimizerRecord) -> str:
    """Return what an optimizer is, with the choices that are built into its graph."""
    choices = {str(flag) for group in record.groups for flag in group.flags}
    choices |= {"max_grad_norm"} if record.max_grad_norm is not None else set()
    return f"{record.kind}({', '.join(sorted(choices))})" if choices else str(record.kind)
