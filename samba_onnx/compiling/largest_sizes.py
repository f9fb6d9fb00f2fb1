"""The largest size of a dimension at which a program fits into device memory, by planning it at a few sizes.

What a program takes in memory is nearly a straight line of the size of its batch, and something like a
parabola of the length of its sequences, with jumps where sections are cut otherwise. The search draws a line
through the two sizes that are known on either side of what the memory holds, plans at the size where the
line meets it, and halves the distance where lines do not help. It ends at neighbours, of which one fits and
the other does not: both were planned.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final, TypeAlias

from samba_onnx.errors import OutOfDeviceMemoryError, SambaError
from samba_onnx.passes.planning.allocation import allocate, off_chip_tiers
from samba_onnx.pef.manifest import Manifest
from samba_onnx.pef.target_summary import TargetSummary

__all__ = ["MOST_PLANNINGS", "MOST_SIZE", "FitSearch", "LargestSize", "SizePlan"]

MOST_PLANNINGS: Final = 12
"""Plannings for each figure; sizes that were planned for an earlier one do not count."""
MOST_SIZE: Final = 1 << 24
"""No larger size is planned: programs have constants that are as long, as the numbers of all rows of a batch."""
_FLAT: Final = 3
"""After so many sizes that take equally much, memory does not depend on the dimension."""
_ALL: Final = ""
"""Stands for all regions together, where two plans have different ones."""
_Fits: TypeAlias = Callable[[Mapping[str, int]], bool]
"""Whether regions of such sizes fit."""
_GROWTH: Final = 1024
"""The next size is at most so many times the largest that fits: curves through small sizes lead far away."""


@dataclass(frozen=True)
class SizePlan:
    """What planning a program at one size of a dimension came to."""

    size: int
    """The size."""
    manifest: Manifest | None
    """The plan; None where there is none."""
    regions: Mapping[str, int]
    """Bytes of all regions by name, in their order; empty where the model has no plan of that size."""
    refusal: str
    """Why the model cannot be planned at this size; empty where memory alone is in the way, or nothing."""

    @property
    def reserved(self) -> int | None:
        """Bytes of all regions; None where the model has no plan of that size."""
        return None if self.refusal else sum(self.regions.values())

    def fits(self, tiers: frozenset[str]) -> bool:
        """Return whether everything lies in memory of these tiers."""
        return self.manifest is not None and all(
            region.tier in tiers for region in self.manifest.regions
        )


@dataclass(frozen=True)
class LargestSize:
    """The largest size that fits into some tiers, and the next one."""

    tiers: tuple[str, ...]
    """Where everything is to lie, the fastest first."""
    capacity: int
    """Bytes of these tiers."""
    largest: SizePlan | None
    """The largest size that fits; None where none does."""
    next: SizePlan | None
    """The smallest planned size that does not fit and is larger; None where none was found."""


class FitSearch:
    """Plans a program at several sizes of one dimension, each once."""

    def __init__(
        self,
        plan: Callable[[int], Manifest],
        target: TargetSummary,
        *,
        first: int = 1,
        step: int = 1,
        most: int | None = None,
        known: Mapping[int, Manifest] = MappingProxyType({}),
        progress: Callable[[int, int], None] = lambda size, count: None,
    ) -> None:
        """Prepare.

        Args:
            plan: Plans the program at a size.
            target: The device's figures.
            first: The size to begin with, at which the program can be planned; of several that are multiples
                of ``step`` the next one.
            step: Only multiples of this are planned.
            most: The largest size that the model takes, where that is known.
            known: Plans that there are already, by size.
            progress: Called with each size before it is planned, and how many were planned for the figure.
        """
        self._plan = plan
        self._target = target
        self._step = step
        self._first = -(-first // step) * step
        self._most = min(MOST_SIZE, most or MOST_SIZE) // step * step
        self._progress = progress
        self._plans = {
            size: _size_plan(size, manifest)
            for size, manifest in known.items()
            if not size % step  # others are no multiples
        }

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that were planned, in order."""
        return tuple(sorted(self._plans))

    def largest(self) -> tuple[LargestSize, ...]:
        """Return the largest size for the fastest tier of off-chip memory, then for all of them together.

        Raises:
            SambaError: The program cannot be planned at the first size for another reason than memory.
        """
        tiers = [tier.name for tier in off_chip_tiers(self._target)]
        choices = [tuple(tiers[:1])] + ([tuple(tiers)] if len(tiers) > 1 else [])
        for choice in choices:
            self._search(choice)
        # What was planned for a later figure may be nearer to an earlier one.
        return tuple(
            LargestSize(choice, self._capacity(choice), *self._ends(frozenset(choice)))
            for choice in choices
        )

    def _capacity(self, tiers: tuple[str, ...]) -> int:
        return sum(self._target.tier(name).bytes for name in tiers)

    def _search(self, names: tuple[str, ...]) -> None:
        tiers = frozenset(names)
        target = dataclasses.replace(
            self._target, tiers=tuple(tier for tier in self._target.tiers if tier.name in tiers)
        )
        capacity = self._capacity(names)

        def fits(sizes: Mapping[str, int]) -> bool:
            if sum(sizes.values()) > capacity:
                return False
            try:  # a region lies whole in one tier, which may leave room that none has use for
                allocate(sizes, frozenset(), target)
            except OutOfDeviceMemoryError:
                # Of all regions together nobody knows how they would lie: the sum alone decides.
                return _ALL in sizes
            return True

        low, high = self._ends(tiers)
        count, stalled = 0, 0
        while count < MOST_PLANNINGS:
            size = self._next_size(low, high, fits, stalled)
            if size is None:
                break
            if size not in self._plans:
                self._progress(size, count)
                self._plans[size] = self._planned(size)
                count += 1
            before = low, high
            low, high = self._ends(tiers)
            # A curve that does not describe the memory creeps.
            stalled = stalled + 1 if _is_slow(before, (low, high)) else 0

    def _planned(self, size: int) -> SizePlan:
        try:
            manifest = self._plan(size)
        except OutOfDeviceMemoryError as error:
            # With its regions the size is known to be too large; without, there is
            # nothing to draw through it.
            return SizePlan(size, None, error.regions, "" if error.regions else str(error))
        except SambaError as error:
            # At the first size there is nothing smaller to go on from, so
            # the user hears the reason.
            if not self._plans:
                raise
            return SizePlan(size, None, {}, str(error))
        return _size_plan(size, manifest)

    def _ends(self, tiers: frozenset[str]) -> tuple[SizePlan | None, SizePlan | None]:
        """Return the largest size that fits, and the smallest above it that does not."""
        fitting = [size for size, plan in self._plans.items() if plan.fits(tiers)]
        low = max(fitting, default=0)
        others = [size for size in self._plans if size > low]
        return self._plans.get(low), self._plans[min(others)] if others else None

    def _next_size(
        self, low: SizePlan | None, high: SizePlan | None, fits: _Fits, stalled: int
    ) -> int | None:
        """Return the size to plan next; None where the answer is known, or nothing leads to it."""
        if low is None and high is None:
            return self._first
        if high is None:
            assert low is not None
            return self._beyond(low, fits)
        least = 0 if low is None else low.size
        if high.size - least <= self._step:
            return None
        if high.refusal:
            return self._within_the_model(least, high.size)
        # Twice in a row a curve led nowhere, and halves always end.
        if stalled > 1 or low is None or low.reserved is None or high.reserved is None:
            return self._middle(least, high.size)
        curve = self._curve(low, high, third=not stalled)
        return self._clamped(_crossing(curve, fits, least, high.size), least, high.size)

    def _beyond(self, low: SizePlan, fits: _Fits) -> int | None:
        """Return a size above all that were planned, all of which fit."""
        if low.size >= self._most:  # larger, where the first multiple of the step is
            return None
        smaller = [plan for plan in self._plans.values() if plan.size < low.size]
        other = max(smaller, key=lambda plan: plan.size, default=None)
        # All of them fit, and have something reserved.
        if other is None or (other.reserved or 0) > (low.reserved or 0):
            size = (
                2 * low.size
            )  # it fell: activations begin to take turns, or sections are cut otherwise
        elif other.reserved != low.reserved:
            curve = self._curve(other, low, third=True)
            size = _crossing(curve, fits, low.size, low.size * _GROWTH)
        elif sum(plan.reserved == low.reserved for plan in smaller) > _FLAT:
            return None
        else:
            # It may be that sections are not cut yet: far away they are.
            size = low.size * _GROWTH
        size = max(size // self._step * self._step, low.size + self._step)
        return min(size, self._most)

    def _curve(self, one: SizePlan, other: SizePlan, *, third: bool) -> _Curve:
        """Return what is expected between two sizes: region by region where plans have the same ones.

        Where the two differ, as when activations begin to take turns, plans like the larger one tell more.
        """
        alike = [p for p in self._plans.values() if p.regions.keys() == other.regions.keys()]
        is_alike = one.regions.keys() == other.regions.keys()
        ends = [one, other] if is_alike else [other]
        middle = math.sqrt(one.size * other.size) if is_alike else other.size
        rest = [plan for plan in alike if all(plan is not end for end in ends)]
        # By their ratio, since sizes span several powers of ten.
        rest.sort(key=lambda plan: abs(math.log(plan.size / middle)))
        plans = [*ends, *rest][: 3 if third else 2]
        if len(plans) > 1:
            return _Curve([(plan.size, plan.regions) for plan in plans])
        # Plans have different regions, and what these take together is all
        # that a line can go through.
        return _Curve([(plan.size, {_ALL: plan.reserved or 0}) for plan in (one, other)])

    def _within_the_model(self, low: int, high: int) -> int:
        """Return a size between one that the model takes and one that it refuses.

        What models refuse lies above round numbers, as that of their positions: powers of two first.
        """
        if high > 2 * low:
            power = 2 ** round(math.log2(math.sqrt(max(low, 1) * high)))
            return self._clamped(power, low, high)
        following = low + self._step
        round_number = not low & (low - 1)
        return following if round_number else self._middle(low, high)

    def _middle(self, low: int, high: int) -> int:
        # Over a wide span the geometric middle, or the first sizes would be
        # nearly as large as the largest.
        wide = high > 4 * max(low, self._step)
        middle = math.isqrt(max(low, self._step) * high) if wide else (low + high) // 2
        return self._clamped(middle, low, high)

    def _clamped(self, size: int, low: int, high: int) -> int:
        """Return a multiple of the step between two sizes, which it is none of."""
        size = size // self._step * self._step
        first = (low // self._step + 1) * self._step
        return min(max(size, first), (high - 1) // self._step * self._step)


def _size_plan(size: int, manifest: Manifest) -> SizePlan:
    regions = {region.name: region.bytes for region in manifest.regions}
    # Without the nodes of stages, which would keep the models of all sizes in memory.
    return SizePlan(size, dataclasses.replace(manifest, stage_graphs=None), regions, "")


def _crossing(curve: _Curve, fits: _Fits, low: int, high: int) -> int:
    """Return the largest size between two at which a curve fits; the lower one is known to."""
    while low < high:
        middle = (low + high + 1) // 2
        if fits(curve.at(middle)):
            low = middle
        else:
            high = middle - 1
    return low


class _Curve:
    """Lines or parabolas, one for each region, through two or three sizes."""

    def __init__(self, points: Sequence[tuple[int, Mapping[str, int]]]) -> None:
        self._points = points

    def at(self, size: int) -> dict[str, int]:
        """Return the bytes of each region at a size, by Lagrange's polynomials."""
        weights = [
            math.prod(
                (Fraction(size - other, x - other) for other, _ in self._points if other != x),
                start=Fraction(1),
            )
            for x, _ in self._points
        ]
        # Exactly, and with one division for each region in place of one for each weight.
        scale = math.lcm(*(weight.denominator for weight in weights))
        factors = [int(weight * scale) for weight in weights]
        contents = [content for _, content in self._points]
        return {
            name: max(sum(f * c[name] for f, c in zip(factors, contents, strict=True)) // scale, 0)
            for name in contents[0]
        }


def _is_slow(
    before: tuple[SizePlan | None, SizePlan | None], after: tuple[SizePlan | None, SizePlan | None]
) -> bool:
    """Return whether a planning left more than half of the distance between the ends."""
    if before[0] is None or before[1] is None or after[0] is None or after[1] is None:
        return False
    return 2 * (after[1].size - after[0].size) > before[1].size - before[0].size
