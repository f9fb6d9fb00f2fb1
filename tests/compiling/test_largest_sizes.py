"""The search for the largest size, on functions whose answer arithmetic gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from samba_onnx.compiling.largest_sizes import MOST_PLANNINGS, MOST_SIZE, FitSearch
from samba_onnx.errors import ModelError, OutOfDeviceMemoryError
from samba_onnx.passes.planning.allocation import allocate
from samba_onnx.pef.manifest import Manifest
from tests.report.samples import detector, target

HBM, ALL = 64_000_000_000, 1_564_000_000_000
EMPTY = dataclasses.replace(detector(), regions=())


class Planner:
    """Plans regions of so many bytes as a function says, as ``allocate`` does."""

    def __init__(
        self, size: Callable[[int], int], refused: Callable[[int], bool], *, turns: bool = False
    ) -> None:
        self._size, self._refused, self._turns = size, refused, turns
        self.sizes: list[int] = []

    def __call__(self, size: int) -> Manifest:
        assert size not in self.sizes  # no size is planned twice
        self.sizes.append(size)
        if self._refused(size):
            raise ModelError(f"{size} is too many")
        return dataclasses.replace(
            EMPTY, regions=allocate(self.sizes_of(size), frozenset(), target())
        )

    def sizes_of(self, size: int) -> dict[str, int]:
        """Return regions of several sizes, each of which lies whole in one tier."""
        needed = self._size(size)
        if self._turns and needed > HBM:  # others of the regions hold them one after the other
            return {f"t{n}": (needed // 231) * n for n in (3, 20, 7, 11, 5)}
        parts = {f"r{n}": needed * n // 231 for n in range(1, 21)}
        return parts | {"rest": needed - sum(parts.values())}

    def fits(self, size: int, tiers: tuple[str, ...]) -> bool:
        try:
            regions = allocate(self.sizes_of(size), frozenset(), target())
        except OutOfDeviceMemoryError:
            return False
        return all(region.tier in tiers for region in regions)


def never(size: int) -> bool:
    return False


FUNCTIONS: dict[str, Callable[[int], int]] = {
    "line": lambda n: 3_000_000_000 + 1_000_003 * n,
    "steep line": lambda n: 7_000_000_001 * n,
    "parabola": lambda n: 10**9 + 4 * n * n + 10**6 * n,
    "steep parabola": lambda n: 2 * 10**9 + 12 * 4096 * n * n,
    # One section at first, which keeps everything on the chip; many later.
    "cut later": lambda n: 10**6 + (700 * n if n < 3000 else 170_000 * n),
    "jumps": lambda n: 5 * 10**9 + 1_000_000 * n + 40_000_000 * (n // 700),
}


@pytest.mark.parametrize("first", [1, 64])
@pytest.mark.parametrize("step", [1, 8])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_neighbours_are_named_after_a_dozen_plannings(name: str, step: int, first: int) -> None:
    size = FUNCTIONS[name]
    planner = Planner(size, never)
    answers = FitSearch(planner, target(), first=first, step=step).largest()
    assert [answer.tiers for answer in answers] == [("hbm",), ("hbm", "ddr")]
    assert [answer.capacity for answer in answers] == [HBM, ALL]
    for answer in answers:
        largest = 0 if answer.largest is None else answer.largest.size
        assert answer.next is not None
        assert answer.next.size == largest + step
        assert not largest or planner.fits(largest, answer.tiers)
        assert not planner.fits(answer.next.size, answer.tiers)
        # Both sides were planned.
        assert not largest or largest in planner.sizes
        assert answer.next.size in planner.sizes
        assert answer.next.reserved == size(answer.next.size)
    assert all(number % step == 0 for number in planner.sizes)
    assert len(planner.sizes) <= 2 * MOST_PLANNINGS


@pytest.mark.parametrize("first", [1, 64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_activations_that_take_turns_where_memory_is_short(name: str, first: int) -> None:
    """What is reserved falls to a fifth there, in regions of other names, and rises again."""
    planner = Planner(FUNCTIONS[name], never, turns=True)
    for answer in FitSearch(planner, target(), first=first).largest():
        assert answer.largest is not None
        if answer.next is None:
            assert answer.largest.size == MOST_SIZE  # the largest that is planned at all fits
            continue
        assert answer.next.size == answer.largest.size + 1
        assert planner.fits(answer.largest.size, answer.tiers)
        assert not planner.fits(answer.next.size, answer.tiers)


@pytest.mark.parametrize("fall", [HBM // 5, HBM // 2])
@pytest.mark.parametrize("first", [1, 3, 7])
def test_what_is_reserved_may_fall_and_rise_again(first: int, fall: int) -> None:
    """As where sections are cut otherwise; a size that takes less than the one before is no last one."""

    def size(count: int) -> int:
        return 2_800_000_000 * count - (fall if count > 20 else 0)

    planner = Planner(size, never)
    for answer in FitSearch(planner, target(), first=first).largest():
        assert answer.largest is not None
        assert answer.next is not None
        assert answer.next.size == answer.largest.size + 1
        assert answer.largest.size > 22


def test_a_first_multiple_above_all_that_is_planned_ends_the_search() -> None:
    planner = Planner(lambda size: 100 * size, never)
    for answer in FitSearch(planner, target(), step=6 * MOST_SIZE).largest():
        assert answer.largest is not None
        assert answer.largest.size == 6 * MOST_SIZE
    assert planner.sizes == [6 * MOST_SIZE]


@pytest.mark.parametrize("limit", [1, 7, 512, 1000, 1024, 131_072])
def test_what_the_model_refuses_ends_the_search(limit: int) -> None:
    planner = Planner(FUNCTIONS["line"], lambda size: size > limit)
    fast, every = FitSearch(planner, target()).largest()
    assert every.largest is not None
    assert every.next is not None
    assert (every.largest.size, every.next.size) == (limit, limit + 1)
    assert every.next.refusal == f"{limit + 1} is too many"
    if limit < 60_000:  # HBM holds as much
        assert (fast.largest, fast.next) == (every.largest, every.next)
