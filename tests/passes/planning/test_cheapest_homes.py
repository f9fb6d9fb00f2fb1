"""The cheapest homes, against every choice of homes."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_onnx.passes.planning.cheapest_homes import CutProblem, CutValue, components
from samba_onnx.passes.planning.partitioning import Home

MOST = 14


def brute_force(problem: CutProblem) -> tuple[int, int]:
    """Return the smallest cost of all homes, and the most nodes on the RDU that has it."""
    choices = [
        (problem.fixed[position],) if position in problem.fixed else tuple(Home)
        for position in range(len(problem.rdu))
    ]
    entries = ((problem.cost(homes), homes) for homes in itertools.product(*choices))
    cost, fewest = min((cost, sum(h is Home.CPU for h in homes)) for cost, homes in entries)
    return cost, len(problem.rdu) - fewest


@st.composite
def problems(draw: st.DrawFn, most: int = 9) -> CutProblem:
    """Return problems with values that several nodes read, terminals and fixed homes."""
    count = draw(st.integers(1, most))
    costs = st.integers(0, 12)
    homes = st.sampled_from([None, None, Home.CPU, Home.RDU])
    fixed = {p: home for p in range(count) if (home := draw(homes)) is not None}
    values = []
    for position in range(-2, count):
        writer = list(Home)[position] if position < 0 else position
        readers = [p for p in range(max(position + 1, 0), count) if draw(st.integers(0, 2)) == 0]
        ends = frozenset(draw(st.lists(st.sampled_from(Home), max_size=2)))
        values.append(CutValue(writer, tuple(readers), draw(costs), draw(costs), ends))
    every = [tuple(draw(costs) for _ in range(count)) for _ in range(2)]
    return CutProblem(every[0], every[1], fixed, tuple(values))


def test_the_cost_of_homes_is_that_of_nodes_and_of_copies() -> None:
    r, c = Home.RDU, Home.CPU
    value = CutValue(0, (1, 2), down=50, up=70)
    problem = CutProblem((1, 2, 3), (10, 20, 30), {}, (value,))
    costs = {
        (r, r, r): 6,
        (r, c, r): 1 + 20 + 3 + 50,
        (r, c, c): 1 + 20 + 30 + 50,
        (c, r, r): 10 + 2 + 3 + 70,
        (c, c, r): 10 + 20 + 3 + 70,
        (c, c, c): 60,
    }
    assert {homes: problem.cost(homes) for homes in costs} == costs
    kept = CutProblem((1,), (10,), {}, (CutValue(0, (), 50, 70, frozenset({r})),))
    assert (kept.cost((r,)), kept.cost((c,))) == (1, 80)
    fed = CutProblem((1,), (10,), {}, (CutValue(r, (0,), 50, 70, frozenset({c})),))
    assert (fed.cost((r,)), fed.cost((c,))) == (51, 60)


@pytest.mark.parametrize("scale", [1, 1 << 40])
def test_a_node_moves_where_a_copy_costs_less_than_the_difference(scale: int) -> None:
    """The smallest cut is smaller than some edges, whatever bound they are cut off at."""
    value = CutValue(Home.RDU, (0,), down=50 * scale, up=50 * scale)
    assert CutProblem((100 * scale,), (0,), {}, (value,)).solve() == (Home.CPU,)
    assert CutProblem((40 * scale,), (0,), {}, (value,)).solve() == (Home.RDU,)


def test_the_smallest_costs_count_as_they_are() -> None:
    """Two copies of 1 are less than a node of 3."""
    values = CutValue(Home.RDU, (0,), 1, 1), CutValue(0, (), 1, 1, frozenset({Home.RDU}))
    assert CutProblem((3,), (0,), {}, values).solve() == (Home.CPU,)
    assert CutProblem((1,), (0,), {}, values).solve() == (Home.RDU,)


def test_values_are_listed_by_the_nodes_that_write_and_read_them() -> None:
    first, second = CutValue(0, (1, 2), 1, 1), CutValue(Home.CPU, (2,), 1, 1)
    problem = CutProblem((0,) * 4, (0,) * 4, {}, (first, second))
    assert problem.touching() == {0: [first], 1: [first], 2: [first, second]}


@settings(max_examples=150, deadline=None)
@given(problems())
def test_the_homes_cost_as_little_as_any_and_leave_the_most_on_the_rdu(problem: CutProblem) -> None:
    homes = problem.solve()

    assert all(homes[position] is home for position, home in problem.fixed.items())
    assert (problem.cost(homes), sum(h is Home.RDU for h in homes)) == brute_force(problem)


def random_problem(seed: int, count: int, microsecond: int = 1_000_000) -> CutProblem:
    """Return a problem of sizes as models have them: latencies of 10 µs, a tenth on the CPU."""
    source = random.Random(seed)
    fixed = {p: Home.CPU for p in range(count) if source.random() < 0.15}
    values = [CutValue(Home.CPU, (0,), 10 * microsecond, 10 * microsecond)]
    for position in range(count):
        nearest = range(position + 1, min(position + 12, count))
        readers = tuple(
            sorted(source.sample(nearest, min(source.choice([1, 1, 2, 3]), len(nearest))))
        )
        size = 10 * microsecond + source.randrange(20 * microsecond)
        ends = frozenset() if readers else frozenset({Home.CPU})
        values.append(CutValue(position, readers, size, size, ends))
    rdu = tuple(source.randrange(microsecond) for _ in range(count))
    cpu = tuple(cost + source.randrange(15 * microsecond) for cost in rdu)
    return CutProblem(rdu, cpu, fixed, tuple(values))


@pytest.mark.parametrize("seed", range(3))
def test_fourteen_nodes_with_costs_as_models_have_them(seed: int) -> None:
    problem = random_problem(seed, MOST)

    assert problem.cost(problem.solve()) == brute_force(problem)[0]


def test_ten_thousand_nodes_cost_no_more_than_any_change_of_one_or_two() -> None:
    problem = random_problem(7, 10_000)

    homes = list(problem.solve())

    moved = [p for p, home in enumerate(homes) if home is Home.CPU and p not in problem.fixed]
    assert 100 < len(moved) < 8_000
    best = problem.cost(homes)
    touching: dict[int, list[CutValue]] = {}
    for value in problem.values:
        for position in {*value.readers, value.writer} - set(Home):
            touching.setdefault(int(position), []).append(value)
    source = random.Random(0)
    free = [p for p in range(10_000) if p not in problem.fixed]
    for position in source.sample(free, 40):
        changed = list(homes)
        changed[position] = Home.RDU if homes[position] is Home.CPU else Home.CPU
        assert problem.cost(changed) >= best


def test_a_value_with_several_readers_is_copied_once() -> None:
    # Three readers on the CPU together cost less than one copy, two more than it.
    value = CutValue(Home.CPU, (0, 1, 2), down=0, up=10)
    cheap = CutProblem((0, 0, 0), (3, 3, 3), {}, (value,))
    dear = CutProblem((0, 0, 0), (3, 3, 5), {}, (value,))

    assert cheap.solve() == (Home.CPU,) * 3
    assert dear.solve() == (Home.RDU,) * 3


def test_costs_beyond_thirty_two_bits_are_rounded_not_wrapped() -> None:
    hours = 10**16  # picoseconds
    value = CutValue(Home.CPU, (0,), down=hours, up=hours)
    between = CutValue(0, (1,), down=3 * hours, up=3 * hours)
    problem = CutProblem((0, 0), (hours // 2, 5 * hours), {}, (value, between))

    assert problem.solve() == (Home.RDU, Home.RDU)
    assert problem.cost(problem.solve()) == brute_force(problem)[0]


@pytest.mark.parametrize(("copy", "home"), [(1.75, Home.RDU), (1.25, Home.CPU)])
def test_costs_beyond_what_is_exact_are_rounded_to_the_nearest(copy: float, home: Home) -> None:
    """Of a node of 3.125 units, and two copies that would cost 3.5 or 2.5 if it moved."""
    unit = 1 << 12
    rest = CutValue(Home.RDU, (1,), down=(1 << 29) * unit, up=0)
    copies = (
        CutValue(Home.RDU, (0,), down=int(copy * unit), up=0),
        CutValue(0, (), down=0, up=int(copy * unit), ends=frozenset({Home.RDU})),
    )
    node = int(3.125 * unit)
    problem = CutProblem((node, 0), (0, 0), {1: Home.CPU}, (*copies, rest))
    assert problem.solve() == (home, Home.CPU)
    assert problem.cost(problem.solve()) == brute_force(problem)[0]


def test_copies_of_many_large_values_add_up_without_wrapping() -> None:
    most = 1 << 40
    values = tuple(CutValue(Home.RDU, (0,), down=2 * most, up=0) for _ in range(8))
    assert CutProblem((most,), (0,), {}, values).solve() == (Home.RDU,)


def test_components_are_what_no_value_connects() -> None:
    values = (
        CutValue(0, (2, 3), 1, 1),
        CutValue(1, (4,), 1, 1),
        CutValue(Home.CPU, (3, 5), 1, 1),
    )
    problem = CutProblem((0,) * 7, (0,) * 7, {}, values)

    assert list(components(problem, [0, 1, 2, 3, 4, 5, 6])) == [[0, 2, 3, 5], [1, 4], [6]]
    assert list(components(problem, [2, 4])) == [[2], [4]]
