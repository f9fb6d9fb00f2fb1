"""Steps: what is merged, what stays visible, and what must not share a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from samba_onnx.errors import ScheduleError
from samba_onnx.pef.manifest import (
    Call,
    Fallback,
    Graph,
    Manifest,
    Producer,
    Region,
    Section,
    SourceModel,
    Symbol,
)
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.schedule import GraphSchedule, Step
from tests.runtime.building import TARGET, WEIGHT, Plan, build, section

OPT = SectionType.OPT
Shape = tuple[bool, Sequence[str], Sequence[str]]
"""Whether a stage runs on the RDU, what it reads and what it writes."""


def schedule(
    *stages: Shape,
    outputs: Sequence[str],
    regions: dict[str, str] | None = None,
    kinds: dict[str, SymbolKind] | None = None,
) -> GraphSchedule:
    names = dict.fromkeys(name for _, reads, writes in stages for name in (*reads, *writes))
    places = {name: (regions or {}).get(name, name) for name in names}
    symbols = tuple(
        Symbol(
            name,
            (kinds or {}).get(name, SymbolKind.ACTIVATION),
            "tensor(float)",
            (4,),
            places[name],
            bytes=16,
        )
        for name in names
    )
    made = [
        (Section if on_rdu else Fallback)(
            number, f"s{number}", "main", "", tuple(reads), tuple(writes), (), {}
        )
        for number, (on_rdu, reads, writes) in enumerate(stages)
    ]
    calls = tuple(Call(number, number) for number in range(len(stages)))
    graph = Graph("main", ("x",), tuple(outputs), calls, (), ())
    manifest = Manifest(
        Producer("test", "1"),
        TARGET,
        SourceModel("m", "", 21, 1),
        "o3",
        (graph,),
        tuple(stage for stage in made if isinstance(stage, Section)),
        tuple(stage for stage in made if isinstance(stage, Fallback)),
        symbols,
        tuple(Region(name, 16, "ddr") for name in dict.fromkeys(places.values())),
    )
    return GraphSchedule(manifest, graph)


def shapes(steps: Sequence[Step]) -> list[tuple[tuple[int, ...], tuple[str, ...], tuple[str, ...]]]:
    return [
        (step.calls, tuple(f"{name}@{call}" for name, call in step.inputs), step.outputs)
        for step in steps
    ]


def test_neighbours_of_one_home_are_merged() -> None:
    plan = schedule(
        (True, ["x"], ["a"]),
        (True, ["a", "x"], ["b"]),
        (False, ["b"], ["c"]),
        (False, ["c"], ["d"]),
        (True, ["d", "a"], ["y"]),
        outputs=["y", "c"],
    )
    assert shapes(plan.steps(merge=True)) == [
        ((0, 1), ("x@0",), ("a", "b")),
        ((2, 3), ("b@2",), ("c", "d")),
        ((4,), ("d@4", "a@4"), ("y",)),
    ]
    assert [step.calls for step in plan.steps(merge=False)] == [(0,), (1,), (2,), (3,), (4,)]


def test_inner_values_are_hidden() -> None:
    plan = schedule(
        (True, ["x"], ["a", "unused"]), (True, ["a"], ["b"]), (True, ["b"], ["y"]), outputs=["y"]
    )
    (step,) = plan.steps(merge=True)
    assert (step.outputs, step.hidden) == (("y",), ("a", "unused", "b"))
    # In a partial run the values that other calls read must survive.
    (part,) = plan.steps(plan.graph.calls[:2], merge=True)
    assert part.outputs == ("b",)


def test_of_one_region_only_the_last_value_survives() -> None:
    plan = schedule(
        (True, ["x"], ["a"]),
        (True, ["a"], ["b"]),
        (True, ["b"], ["c"]),
        (False, ["a", "c"], ["y"]),
        outputs=["y"],
        regions={"c": "a"},
    )
    first = plan.steps(merge=True)[0]
    assert (first.calls, first.outputs) == ((0, 1, 2), ("c",))


def test_regions_that_are_overwritten_divide_steps() -> None:
    plan = schedule(
        (True, ["x", "w"], ["a"]),
        (True, ["a", "w"], ["new"]),
        (True, ["new"], ["b"]),
        (True, ["b", "w"], ["y"]),
        outputs=["y"],
        regions={"new": "w"},
        kinds={"w": SymbolKind.WEIGHT, "new": SymbolKind.WEIGHT},
    )
    # Call 1 overwrites what call 0 reads; call 3 reads by another name what call 1 wrote.
    assert [step.calls for step in plan.steps(merge=True)] == [(0,), (1, 2), (3,)]


def test_updates_in_place_are_right_within_one_type(tmp_path: Path) -> None:
    """Merged into one session, the late reader of the weight could see its update."""
    plan = Plan(
        [
            section("s (float[4] x, float[4] state) => (float[4] a) { a = Mul(x, state) }"),
            section("s (float[4] a, float[4] state) => (float[4] new) { new = Sub(state, a) }"),
            section("s (float[4] x, float[4] new) => (float[4] y) { y = Mul(x, new) }"),
            section("s (float[4] y, float[4] new) => (float[4] newer) { newer = Add(new, y) }"),
        ],
        ["x"],
        ["y"],
        load=[("state", WEIGHT)],
        weights={"state": np.ones(4, np.float32)},
        kinds=dict.fromkeys(("state", "new", "newer"), SymbolKind.WEIGHT),
        shared={"new": "state", "newer": "state"},
    )
    x = np.array([0.5, 0.25, 2, -1], np.float32)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        state = np.ones(4, np.float32)
        for _ in range(3):
            y = device.run({"x": x})["y"]
            state = state - x * state
            np.testing.assert_array_equal(y, x * state)
            state = state + y
            np.testing.assert_array_equal(device.read("state"), state)


def test_sections_of_one_optimizer_share_a_step(tmp_path: Path) -> None:
    """The update of a weight that was cut in two needs no place for what is in between."""
    plan = Plan(
        [
            section("a (float[4] w, float d) => (float[4] a) { a = Mul(w, d) }", type=OPT),
            section("b (float[4] a, float[4] g) => (float[4] w1) { w1 = Sub(a, g) }", type=OPT),
            section("c (float[4] v, float[4] g) => (float[4] v1) { v1 = Sub(v, g) }", type=OPT),
        ],
        ["d", "g"],
        [],
        load=[("w", WEIGHT), ("v", WEIGHT)],
        kinds=dict.fromkeys(("w", "w1", "v", "v1"), SymbolKind.WEIGHT),
        shared={"w1": "w", "v1": "v"},
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        manifest = pef.manifest
        (step,) = GraphSchedule(manifest, manifest.graphs[0]).steps(merge=True)
        assert (step.hidden, step.outputs) == (("a",), ("w1", "v1"))
        device.load({"w": np.full(4, 3, np.float32), "v": np.full(4, 5, np.float32)})
        gradient = np.ones(4, np.float32)
        device.run({"d": np.float32(2), "g": gradient})
        assert set(device.read("w")) == {5}
        device.run({"d": np.float32(2), "g": gradient}, section_types=["opt"])
        assert set(device.read("w")) == {9}
        device.run(section_ids=[0, 1])
        assert (set(device.read("w1")), set(device.read("v"))) == ({17}, {3})


def test_an_optimizer_that_shows_what_it_read_uses_a_buffer(tmp_path: Path) -> None:
    size = 1 << 17
    plan = Plan(
        [
            section(
                f"a (float[{size}] w, float d) => (float[{size}] a) {{ a = Mul(w, d) }}", type=OPT
            ),
            section(
                f"b (float[{size}] w, float d) => (float[{size}] w1) {{ w1 = Add(w, d) }}", type=OPT
            ),
        ],
        ["d"],
        ["a"],
        load=[("w", WEIGHT)],
        kinds=dict.fromkeys(("w", "w1"), SymbolKind.WEIGHT),
        shared={"w1": "w"},
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.load({"w": np.ones(size, np.float32)})
        # Were the weight overwritten first, what is shown would be one step ahead.
        for weight in (1, 3, 5):
            assert set(device.run({"d": np.float32(2)})["a"]) == {2 * weight}
        assert set(device.read("w")) == {7}


def test_a_section_that_nobody_reads_from_still_runs(tmp_path: Path) -> None:
    plan = Plan(
        [
            section("f (float[4] x) => (float[4] y) { y = Neg(x) }"),
            section("f (float[4] x) => (float[4] unread) { unread = Abs(x) }", type=OPT),
        ],
        ["x"],
        ["y"],
    )
    x = np.arange(4, dtype=np.float32)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        assert device.run({"x": -x}, section_ids=[1]) == {}
        np.testing.assert_array_equal(device.read("unread"), x)
        np.testing.assert_array_equal(device.run({"x": x})["y"], -x)


def test_what_is_overwritten_in_a_run_is_neither_read_nor_returned(tmp_path: Path) -> None:
    """An output and an activation in one place: after both were written, the output is gone."""
    plan = Plan(
        [
            section("f (float[4] x) => (float[4] y) { y = Neg(x) }"),
            section("f (float[4] x) => (float[4] b) { b = Abs(x) }", type=SectionType.BCKWD),
            section("f (float[4] b) => (float[4] z) { z = Neg(b) }", type=OPT),
        ],
        ["x"],
        ["y", "z"],
        shared={"y": "place", "b": "place"},
    )
    x = np.arange(4, dtype=np.float32)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        results = device.run({"x": x}, section_ids=[0, 1])
        assert results == {}
        assert list(device.run({"x": x}, section_ids=[0])) == ["y"]
        with pytest.raises(ScheduleError, match="you ask for 'y', whose place another section"):
            device.run({"x": x}, ["y"], section_ids=[0, 1])
        with pytest.raises(ScheduleError, match="'b', whose place another section of this run"):
            device.run({"x": x}, section_ids=[1, 0, 2])


def test_values_without_a_region_do_not_keep_fallbacks_apart() -> None:
    """They live on the host, each for itself."""
    plan = schedule(
        (False, ["x"], ["a"]),
        (False, ["z"], ["b"]),
        (False, ["a", "b"], ["y"]),
        outputs=["y"],
        regions=dict.fromkeys("xzaby", ""),
    )
    assert shapes(plan.steps(merge=True)) == [((0, 1, 2), ("x@0", "z@1"), ("y",))]


def test_a_fallback_that_writes_what_stays_on_the_device_ends_its_step() -> None:
    plan = schedule(
        (False, ["x"], ["w"]),
        (False, ["x"], ["y"]),
        outputs=["y"],
        kinds={"w": SymbolKind.BUFFER},
    )
    assert [step.calls for step in plan.steps(merge=True)] == [(0,), (1,)]
