"""Scalars that a run sends to the device: hyperparameters that persist, dropout rates and seeds."""

from __future__ import annotations

import difflib
import hashlib
import logging
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import torch

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import GRADIENT_ROUNDING_SEED, RATE, ROUNDING_SEED, SEED
from samba_onnx.optim import HyperparameterValue
from samba_onnx.optim.argins import COMMON_KEYS
from samba_onnx.pef.manifest import Argin
from samba_onnx.sessions.optimizer_steps import OptimizerSteps

LOGGER: Final = logging.getLogger(__name__)

DROPOUT_KEY: Final = "p"
"""Hyperparameter that sets the rate of every dropout."""
SEED_VARIABLE: Final = "SAMBA_SEED"
"""Environment variable that seeds the device's dropout masks; torch's seed counts without it."""

_PLAIN: Final = frozenset({int, float})
"""Types of numbers that stay what they are."""
NO_NUMBERS: Final[Mapping[str, HyperparameterValue]] = {}
"""Hyperparameters of a run that has none of its own."""
NO_ARGINS: Final[Mapping[str, float]] = {}


class Hyperparameters:
    """The hyperparameters of a session, and what they make of a program's argins."""

    def __init__(
        self, argins: Iterable[Argin] = (), optimizers: OptimizerSteps | None = None
    ) -> None:
        """Begin with what was compiled.

        Args:
            argins: The argins of the PEF.
            optimizers: Derives those of the optimizers; None without any.
        """
        self._argins = {argin.name: argin for argin in argins}
        self._optimizers = optimizers or OptimizerSteps()
        self.rate_names = tuple(name for name in self._argins if name.endswith(RATE))
        """Argins that are dropout rates."""
        self.seed_names = tuple(name for name in self._argins if name.endswith(SEED))
        """Argins that are dropout seeds."""
        self.rounding_names = tuple(name for name in self._argins if name.endswith(ROUNDING_SEED))
        """Argins that are seeds of stochastic rounding."""
        self.values: dict[str, HyperparameterValue] = {}
        """What users gave so far."""
        self._given: Mapping[str, Any] = {}
        """The numbers that were checked last, and what came of them."""
        self._checked: Mapping[str, HyperparameterValue] = {}
        self._kept: Mapping[str, HyperparameterValue] = {}
        """The hyperparameters that persist since the last run."""
        self._complete: Mapping[str, Any] | None = None
        """Scalars of the optimizers that were found to be all that runs send with these hyperparameters."""
        self._told: set[str] = set()
        """Keys of which was said that they have no effect."""
        if self.rounding_names:
            self._optimizers.count_roundings()
        self._runs = 0
        self._runs_of_step = 0
        """Forward runs since the last step."""
        self._base = _base_seed()
        self._shared_base: int | None = None
        """The seed that all replicas have in common; None for that of this process."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all argins, in the PEF's order."""
        return tuple(self._argins)

    def checked(self, numbers: Mapping[str, Any]) -> Mapping[str, HyperparameterValue]:
        """Return hyperparameters as numbers, changing nothing.

        Keys that the program has no argin for are kept, too: programs send the same ones to every
        graph. One that nothing here understands is told of, once.

        Args:
            numbers: Numbers by name; two for ``betas``.

        Returns:
            The hyperparameters, in a mapping that is not changed any more; the same object when
            numbers are those of the last call.

        Raises:
            UsageError: One is no number, or a dropout rate outside 0 to 1.
        """
        if not isinstance(numbers, Mapping):
            raise UsageError(
                f"hyperparam_dict is {type(numbers).__name__}; "
                "give numbers by name, as {'lr': 0.1}"
            )
        if not numbers:
            return NO_NUMBERS
        # A tensor or an array may be changed in place and still be the same object: only plain
        # numbers can be compared with those of the last call.
        is_plain = _PLAIN.issuperset(map(type, numbers.values()))
        if is_plain and numbers == self._given:
            return self._checked
        checked = {str(name): _number(str(name), value) for name, value in numbers.items()}
        self._tell_of_unknown(checked)
        for name in (DROPOUT_KEY, *self.rate_names):
            rate = checked.get(name, 0.0)
            if not (isinstance(rate, float) and 0.0 <= rate <= 1.0):
                raise UsageError(f"dropout rate {name!r} is {rate}; give one from 0 to 1")
        if is_plain:
            self._given, self._checked = dict(numbers), checked
        return checked

    def _tell_of_unknown(self, numbers: Iterable[str]) -> None:
        """Warn of keys that are no hyperparameter of anything, as misspelt ones are."""
        # The usual keys are never spoken of: programs send the same ones to every graph.
        known = COMMON_KEYS | self._told | self._argins.keys() | {DROPOUT_KEY}
        for name in numbers:
            if name in known or self._optimizers.understands(name):
                continue
            self._told.add(name)
            dropouts = (DROPOUT_KEY, *self.rate_names, *self.seed_names)
            own = (*self._optimizers.keys, *(dropouts if self.rate_names else ()))
            near = difflib.get_close_matches(name, own, 1)
            names = near or own
            LOGGER.warning(
                "hyperparam_dict has %r, which sets nothing of this program: %sleave it out",
                name,
                f"give {', '.join(map(repr, names))}, or " if names else "it has none; ",
            )

    def argins(
        self,
        hyperparameters: Mapping[str, HyperparameterValue],
        *,
        train: bool,
        forward: Collection[str],
        step: bool,
        batches: int = 0,
        replica: int = 0,
    ) -> Mapping[str, float | list[float]]:
        """Return what a run sends to the device.

        Args:
            hyperparameters: Hyperparameters of this run, as ``checked`` returns them.
            train: Whether dropouts drop anything; counts for those that the run goes forward through.
            forward: What forward sections of the run read; a dropout whose argins are among it gets
                its rate and a new seed.
            step: Whether it executes optimizer sections.
            batches: Mini-batches of the run, in spatial mapping: each draws masks of its own and is
                a step of its own, as if it were a run. 0 for a run of one batch.
            replica: Number of the replica: each draws masks of its own.

        Returns:
            Values by argin, in a mapping that is not changed any more; lists of those that differ
            from mini-batch to mini-batch.
        """
        if not self._argins:
            return NO_ARGINS
        is_kept = hyperparameters is self._kept
        values = self.values if is_kept else {**self.values, **hyperparameters}
        derived = self._optimizers.argins(hyperparameters, step, batches)
        # The same objects as in the run before, of which this was found out then.
        if is_kept and derived is self._complete:
            return derived
        if self._is_all(derived, values):
            self._complete = derived if is_kept else None
            return derived
        # Groups in which no parameter is trained have scalars, and the program has no argins for them.
        chosen: dict[str, float | list[float]] = {
            name: float(values[name]) if name in values else scalar  # type: ignore[arg-type]
            for name, scalar in derived.items()
            if name in self._argins
        }
        # Registers keep their values: a backward that runs apart has the rates and the masks of its
        # forward, whatever its own run says.
        for name in filter(forward.__contains__, self.rate_names):
            chosen[name] = self._rate(name, values) if train else 0.0
        for name in filter(forward.__contains__, self.seed_names):
            chosen[name] = self._seed(name, values, batches, replica)
        return chosen | self._rounding_seeds(values, bool(forward), step, batches, replica)

    def _is_all(self, derived: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        """Return whether the optimizers' scalars are all that a run sends, and none is set by its own name."""
        return (
            not (self.rate_names or self.seed_names or self.rounding_names)
            and values.keys().isdisjoint(derived)
            and derived.keys() <= self._argins.keys()
        )

    def _rate(self, name: str, values: Mapping[str, HyperparameterValue]) -> float:
        """Return the rate of a dropout: its own, that of all dropouts, or the one that was compiled."""
        return float(values.get(name, values.get(DROPOUT_KEY, self._argins[name].default)))  # type: ignore[arg-type]

    def _seed(
        self, name: str, values: Mapping[str, HyperparameterValue], batches: int, replica: int
    ) -> float | list[float]:
        """Return the seed of a dropout in a forward run, as for ``argins``."""
        if name in values:
            return int(values[name])  # type: ignore[arg-type]
        # Counted by forward runs: a spatial run of N batches draws what N runs would.
        runs = range(self._runs, self._runs + (batches or 1))
        drawn: list[float] = [_seed(self._base, name, run, replica) for run in runs]
        return drawn if batches else drawn[0]

    def _rounding_seeds(
        self,
        values: Mapping[str, HyperparameterValue],
        forward: bool,
        step: bool,
        batches: int,
        replica: int,
    ) -> dict[str, float | list[float]]:
        """Seeds of stochastic rounding, as for ``argins``.

        Those of optimizers are the same in all replicas, whose weights must stay equal. All count steps of
        the optimizers' state, those of gradients the runs since the last one, too, so that a run that goes
        on from a checkpoint draws what one without it would.
        """
        chosen: dict[str, float | list[float]] = {}
        steps = self._optimizers.steps_of() if self.rounding_names else {}
        for name in self.rounding_names:
            is_gradient = name == GRADIENT_ROUNDING_SEED
            if name in values:
                chosen[name] = int(values[name])  # type: ignore[arg-type]
            elif forward if is_gradient else step:
                done = max(steps.values(), default=0)
                done = done if is_gradient else steps.get(name.removesuffix(ROUNDING_SEED), 0)
                drawn: list[float] = [
                    self._gradient_seed(done, step, batch, replica)
                    if is_gradient
                    else _seed(self._step_base, name, done + batch, 0)
                    for batch in range(batches or 1)
                ]
                chosen[name] = drawn if batches else drawn[0]
        return chosen

    def _gradient_seed(self, done: int, step: bool, batch: int, replica: int) -> int:
        """Seed of the gradients of a mini-batch, after so many steps and some runs since."""
        # With a step behind each mini-batch, all but the first begin a step.
        at, run = (done + batch, 0) if step and batch else (done, self._runs_of_step + batch)
        return _seed(self._base, f"{GRADIENT_ROUNDING_SEED} {at}", run, replica)

    @property
    def _step_base(self) -> int:
        return self._base if self._shared_base is None else self._shared_base

    def keep(
        self,
        hyperparameters: Mapping[str, HyperparameterValue],
        *,
        forward: bool,
        step: bool,
        batches: int = 0,
    ) -> None:
        """Note that a run succeeded: its hyperparameters persist.

        Args:
            hyperparameters: As ``checked`` returns them.
            forward: Whether it executed forward sections.
            step: Whether it executed optimizer sections.
            batches: Its mini-batches, as for ``argins``.
        """
        if hyperparameters is not self._kept:
            self.values.update(hyperparameters)
            self._kept = hyperparameters
            self._complete = None
        # Only here: a run that failed leaves settings and counts as they were.
        self._optimizers.keep()
        self._runs += forward * (batches or 1)
        self._runs_of_step += forward * (batches or 1)
        if step:
            self._runs_of_step = 0
            self._optimizers.stepped(batches or 1)

    def resume(self) -> None:
        """Note that the host's state of the optimizers was sent: steps are counted on from it."""
        self._optimizers.resume()

    @property
    def steps_done(self) -> tuple[int, int, list[tuple[int, ...]], list[int]]:
        """Forward runs so far, and since the last step; steps of each optimizer, and SGD's random ones."""
        return self._runs, self._runs_of_step, self._optimizers.counts, self._optimizers.rounded

    def resume_from(self, steps_done: tuple[int, int, list[tuple[int, ...]], list[int]]) -> None:
        """Note that the device has the state that another replica's has.

        Args:
            steps_done: As that replica's ``steps_done`` has them.
        """
        self._runs, self._runs_of_step, counts, rounded = steps_done
        self._optimizers.resume_from(counts, rounded)

    @property
    def rounding_seed(self) -> int:
        """The seed from which the steps of all replicas draw alike."""
        return self._step_base

    def round_as(self, rounding_seed: int) -> None:
        """Let optimizers round at random as another replica's do.

        Args:
            rounding_seed: As that replica's ``rounding_seed`` has it.
        """
        self._shared_base = rounding_seed

    def reset_random(self) -> None:
        """Draw the same masks again as from the beginning, and as at the beginning of this step."""
        self._runs = self._runs_of_step = 0
        self._base = _base_seed()


def _seed(base: int, name: str, run: int, replica: int) -> int:
    """A positive int32 that differs from run to run, argin to argin and replica to replica."""
    # The first replica draws what a device alone would.
    text = f"{base} {run} {name}" + (f" {replica}" if replica else "")
    # A digest of Python's own hash() would differ from process to process; this one repeats.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") >> 1


def _number(name: str, value: Any) -> HyperparameterValue:
    try:
        if isinstance(value, (list, tuple)):
            return tuple(float(part) for part in value)
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(
            f"hyperparameter {name!r} is {type(value).__name__}; give a number"
        ) from None


def _base_seed() -> int:
    text = os.environ.get(SEED_VARIABLE, "")
    try:
        return int(text) if text else torch.initial_seed()
    except ValueError:
        raise UsageError(f"{SEED_VARIABLE} is {text!r}; give an integer") from None
