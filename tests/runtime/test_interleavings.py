"""Whole runs, runs of parts, writes, loads and reads in any order: no run is repeated wrongly.

Two things are held against the device: a plain model that computes every value anew, and a device
that takes the long way every time, whose ledger and refusals must be the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from samba_onnx.errors import InputError, ScheduleError
from samba_onnx.pef import Pef
from samba_onnx.pef.manifest import Argin
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.device import Device
from tests.runtime.building import WEIGHT, Piece, Plan, build, fallback, section
from tests.runtime.plain_device import Array, PlainDevice, PlainStage, RefusedError


@dataclass(frozen=True)
class Request:
    """A run without its values."""

    inputs: tuple[str, ...] = ()
    selection: tuple[int, ...] | None = None
    outputs: tuple[str, ...] | None = None
    graph: str = "main"
    argin: str = ""
    """Given a value among the inputs, if named."""


@dataclass(frozen=True)
class Program:
    """The same program twice."""

    plan: Plan
    plain: PlainDevice
    requests: Sequence[Request]
    written: Sequence[str]
    """Symbols that the host writes."""
    loaded: Sequence[str] = ()
    argin: str = ""


def chain() -> Program:
    """Sections, two fallbacks in the middle, two activations in one region, an argin, a weight."""
    vector = "float[3]"
    plan = Plan(
        [
            section(f"f ({vector} x, float k) => ({vector} a) {{ a = Mul(x, k) }}"),
            section(f"f ({vector} a, {vector} weight) => ({vector} b) {{ b = Add(a, weight) }}"),
            section(f"f ({vector} b, {vector} z) => ({vector} c) {{ c = Mul(b, z) }}"),
            fallback(
                f"f ({vector} c, {vector} x, {vector} weight) => ({vector} d) "
                "{ g = Mul(x, weight) d = Sub(c, g) }"
            ),
            fallback(f"f ({vector} d) => ({vector} e) {{ e = Neg(d) }}"),
            section(f"f ({vector} e, {vector} b) => ({vector} y) {{ y = Add(e, b) }}"),
        ],
        ["x", "k", "z"],
        ["y", "b", "e"],
        load=[("weight", WEIGHT)],
        kinds={"weight": SymbolKind.WEIGHT},
        shared={"a": "place", "c": "place"},
        argins=[Argin("k", "tensor(float)", 1.0, (0,))],
    )
    plain = PlainDevice(
        [
            PlainStage(("x", "k"), ("a",), np.multiply),
            PlainStage(("a", "weight"), ("b",), np.add),
            PlainStage(("b", "z"), ("c",), np.multiply),
            PlainStage(("c", "x", "weight"), ("d",), lambda c, x, w: c - x * w, on_rdu=False),
            PlainStage(("d",), ("e",), np.negative, on_rdu=False),
            PlainStage(("e", "b"), ("y",), np.add),
        ],
        {"main": ("y", "b", "e")},
        places={"a": "place", "c": "place"},
        overlaid=frozenset("ac"),
        residents=frozenset({"weight"}),
        argins={"k": np.float32(1)},
    )
    requests = [
        Request(("x", "z")),
        Request(),
        Request(("x",), (0,)),
        Request(("x",), (0, 1), ("b",)),
        Request(("x",), (0, 1), ("b",), argin="k"),
        Request((), (0, 1), ("b",)),
        Request(("z",), (0, 1, 2)),
        Request((), (1,), ("b",)),
        Request((), (1,), ()),
        Request(("z",), (2,), ("b",)),
        Request((), (2,)),
        Request((), (0, 2)),
        Request(("x",), (3,)),
        Request((), (3,)),
        Request((), (3, 4)),
        Request(("x",), (5,), ("y",)),
        Request((), (4,)),
        Request((), (3, 4, 5)),
        Request((), (5,), ("y",)),
        Request((), (5,), ("y", "b")),
    ]
    return Program(plan, plain, requests, ["x", "z", "a", "b", "c", "weight", "k"], ["weight"], "k")


def pair() -> Program:
    """An activation that a whole run loses, and the first half of it leaves for the second."""
    vector = "float[3]"
    plan = Plan(
        [
            section(f"f ({vector} x) => ({vector} a) {{ a = Neg(x) }}"),
            section(f"f ({vector} a, {vector} z) => ({vector} y) {{ y = Mul(a, z) }}"),
        ],
        ["x", "z"],
        ["y"],
    )
    plain = PlainDevice(
        [PlainStage(("x",), ("a",), np.negative), PlainStage(("a", "z"), ("y",), np.multiply)],
        {"main": ("y",)},
    )
    requests = [
        Request(("x", "z")),
        Request(),
        Request(("z",), None, ()),
        Request(("x",), (0,)),
        Request((), (0,)),
        Request((), (1,)),
        Request(("z",), (1,), ("y",)),
    ]
    return Program(plan, plain, requests, ["x", "z", "a", "y"])


def training() -> Program:
    """Forward, backward and optimizer; a weight and its update are one place."""
    vector = "float[3]"
    plan = Plan(
        [
            section(f"f ({vector} x, {vector} weight) => ({vector} y) {{ y = Mul(x, weight) }}"),
            section(
                f"b ({vector} x, {vector} y__grad) => ({vector} weight__grad) "
                "{ weight__grad = Mul(x, y__grad) }",
                type=SectionType.BCKWD,
            ),
            section(
                f"o ({vector} weight, {vector} weight__grad, float lr) => "
                f"({vector} weight__updated) "
                "{ d = Mul(weight__grad, lr) weight__updated = Sub(weight, d) }",
                type=SectionType.OPT,
            ),
        ],
        ["x", "lr"],
        ["y"],
        load=[("weight", WEIGHT)],
        kinds={
            "weight": SymbolKind.WEIGHT,
            "weight__updated": SymbolKind.WEIGHT,
            "weight__grad": SymbolKind.GRADIENT,
            "y__grad": SymbolKind.GRADIENT,
        },
        shared={"weight__updated": "weight"},
        argins=[Argin("lr", "tensor(float)", 0.5, (2,))],
    )
    names = ("weight", "weight__updated", "weight__grad", "y__grad")
    plain = PlainDevice(
        [
            PlainStage(("x", "weight"), ("y",), np.multiply),
            PlainStage(("x", "y__grad"), ("weight__grad",), np.multiply, type="BCKWD"),
            PlainStage(
                ("weight", "weight__grad", "lr"),
                ("weight__updated",),
                lambda weight, gradient, rate: weight - gradient * rate,
                type="OPT",
            ),
        ],
        {"main": ("y",)},
        places={"weight": "weight", "weight__updated": "weight"},
        residents=frozenset(names),
        argins={"lr": np.float32(0.5)},
    )
    requests = [
        Request(("x",)),
        Request(),
        Request(("x",), None, ()),
        Request(("x",), argin="lr"),
        Request(("x",), (0,)),
        Request((), (0,), ("y",)),
        Request((), (1,)),
        Request(("x",), (1,), ("y",)),
        Request((), (2,)),
        Request((), (2,), argin="lr"),
        Request((), (1, 2), ("y",)),
        Request((), (0, 2)),
    ]
    return Program(plan, plain, requests, ["x", *names, "lr"], ["weight"], "lr")


def cache() -> Program:
    """Two graphs with one place in common, which the second reads and overwrites."""
    vector = "float[3]"
    plan = Plan(
        [
            section(f"p ({vector} x) => ({vector} present) {{ present = Add(x, x) }}"),
            Piece(
                f"t ({vector} past, {vector} z) => ({vector} next, {vector} y) "
                "{ next = Add(past, z) y = Neg(next) }",
                graph="token",
            ),
            fallback(f"l ({vector} past) => ({vector} seen) {{ seen = Neg(past) }}", graph="look"),
        ],
        ["x"],
        ["present"],
        shared={"present": "cache", "past": "cache", "next": "cache"},
        graphs={"token": (["past", "z"], ["next", "y"]), "look": (["past"], ["seen"])},
        kinds=dict.fromkeys(("next", "y", "seen"), SymbolKind.OUTPUT),
    )
    plain = PlainDevice(
        [
            PlainStage(("x",), ("present",), lambda x: x + x),
            PlainStage(
                ("past", "z"), ("next", "y"), lambda past, z: (past + z, -(past + z)), graph="token"
            ),
            PlainStage(("past",), ("seen",), np.negative, on_rdu=False, graph="look"),
        ],
        {"main": ("present",), "token": ("next", "y"), "look": ("seen",)},
        places=dict.fromkeys(("present", "past", "next"), "cache"),
    )
    requests = [
        Request(("x",)),
        Request(("x",), outputs=()),
        Request(),
        Request(("z",), outputs=("y",), graph="token"),
        Request(("past", "z"), outputs=("y",), graph="token"),
        Request((), graph="token"),
        Request(("z",), outputs=("next", "y"), graph="token"),
        Request(graph="look"),
        Request(("past",), graph="look"),
    ]
    return Program(plan, plain, requests, ["x", "z", "present", "past", "next", "y"])


class Interleaving(RuleBasedStateMachine):
    """One sequence of whatever a program does with a device."""

    pef: Pef
    program: Program

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.device = self.stack.enter_context(Device(self.pef, threads=1))
        self.slow = self.stack.enter_context(Device(self.pef, threads=1))
        program = self.program
        plain = program.plain
        self.plain = PlainDevice(
            plain.stages,
            plain.outputs,
            plain.places,
            plain.overlaid,
            plain.residents,
            dict(plain.argins),
        )
        self.numbers = np.random.default_rng(0)
        self.copies = 0

    def vector(self) -> Array:
        # Small whole numbers: sums and products are exact, in whatever order.
        return self.numbers.integers(-4, 5, 3).astype(np.float32)

    @initialize(ready=st.integers(0, 3))
    def begin(self, ready: int) -> None:
        """Mostly with everything that a whole run needs."""
        if ready:
            for number, name in enumerate(self.program.written):
                if name in self.program.loaded or name in self.program.requests[0].inputs:
                    self.write(number)

    @rule(which=st.integers(0, 99), times=st.integers(1, 4))
    def run(self, which: int, times: int) -> None:
        for _ in range(times):
            self.run_once(self.program.requests[which % len(self.program.requests)])

    @rule(which=st.integers(0, 99), other=st.integers(0, 99))
    def run_two_by_turns(self, which: int, other: int) -> None:
        """What is repeated right after something else is what a careless replay gets wrong."""
        requests = self.program.requests
        for number in (which, which, other, which, other, which, which):
            self.run_once(requests[number % len(requests)])

    def run_once(self, request: Request) -> None:
        inputs: dict[str, Any] = {name: self.vector() for name in request.inputs}
        argins = {}
        if self.program.argin and self.numbers.integers(2):
            argins = {self.program.argin: float(self.numbers.integers(-3, 4))}
        given = inputs
        if request.argin:
            given = {**inputs, request.argin: np.float32(argins.pop(request.argin, 2))}
        options: dict[str, Any] = {"graph": request.graph, "argins": argins}
        if request.selection is not None:
            options["section_ids"] = list(request.selection)
        before = dict(self.plain.argins)
        self.plain.argins |= {name: np.float32(value) for name, value in argins.items()}
        self.plain.argins |= {n: given[n] for n in given if n == request.argin}
        try:
            expected = self.plain.run(request.graph, request.selection, inputs, request.outputs)
        except RefusedError:
            self.plain.argins = before
            for device in (self.device, self.slow):
                with pytest.raises((InputError, ScheduleError)):
                    device.run(given, request.outputs, **options)
            self.check()
            return
        self.slow.runs._runs.clear()
        slow = self.slow.run(given, request.outputs, **options)
        found = self.device.run(given, request.outputs, **options)
        assert list(found) == list(slow) == list(expected)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, name)
            np.testing.assert_array_equal(slow[name], array, name)
        # What goes in and comes out is the caller's, who may do with it what he likes.
        for array in (*inputs.values(), *found.values()):
            array[:] = np.nan
        self.check()

    @rule(which=st.integers(0, 99))
    def write(self, which: int) -> None:
        name = self.program.written[which % len(self.program.written)]
        value: Any = self.vector()
        if name == self.program.argin:
            value = np.float32(value[0])
            self.plain.argins[name] = value
        else:
            self.plain.put(name, value)
        for device in (self.device, self.slow):
            device.write(name, value)
        if name != self.program.argin:
            value[:] = np.nan
        self.check()

    @precondition(lambda self: self.program.loaded)
    @rule(which=st.integers(0, 99))
    def load(self, which: int) -> None:
        name = self.program.loaded[which % len(self.program.loaded)]
        value = self.vector()
        self.plain.put(name, value)
        for device in (self.device, self.slow):
            device.load({name: value})
        value[:] = np.nan
        self.check()

    @rule()
    def read_everything(self) -> None:
        for name in self.program.written:
            if name == self.program.argin:
                assert self.device.read(name) == self.plain.argins[name]
            elif name in self.plain.values and name not in self.plain.host_only:
                for device in (self.device, self.slow):
                    np.testing.assert_array_equal(device.read(name), self.plain.values[name], name)
            else:
                for device in (self.device, self.slow):
                    with pytest.raises(ScheduleError):
                        device.read(name)
        self.check()

    def check(self) -> None:
        """Nothing that can be seen, now or by what comes next, tells the devices apart."""
        values, slow = self.device._values, self.slow._values
        for symbol in self.pef.manifest.symbols:
            name = symbol.name
            if name == self.program.argin:
                continue
            assert values.is_on_device(name) == slow.is_on_device(name), name
            assert values.is_on_host(name) == slow.is_on_host(name), name
            assert values.has(name) == (name in self.plain.values), name
            if values.is_on_device(name):
                found = self.device.memory.tensor(name).load()
                np.testing.assert_array_equal(found, self.plain.values[name], name)
            if values.is_on_host(name):
                found = values.host_value(name)
                np.testing.assert_array_equal(found, self.plain.values[name], name)
        made = self.device.ledger.transfers
        assert made[self.copies :] == self.slow.ledger.transfers[self.copies :]
        assert self.device.ledger.runs == self.slow.ledger.runs
        self.copies = len(made)

    def teardown(self) -> None:
        assert self.device.ledger.totals() == self.slow.ledger.totals()
        self.stack.close()


@pytest.fixture(
    scope="module", params=[chain, pair, training, cache], ids=lambda make: make.__name__
)
def machine(request: pytest.FixtureRequest) -> Iterator[type[Interleaving]]:
    program: Program = request.param()
    with tempfile.TemporaryDirectory() as folder, build(Path(folder), program.plan) as pef:
        yield type("Machine", (Interleaving,), {"pef": pef, "program": program})


def _settings(examples: int, *phases: Phase) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        phases=phases or tuple(Phase),
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


def test_any_order_gives_the_values_of_the_plain_model(machine: type[Interleaving]) -> None:
    run_state_machine_as_test(machine, settings=_settings(20, Phase.generate))


def test_many_orders_give_the_values_of_the_plain_model(machine: type[Interleaving]) -> None:
    run_state_machine_as_test(machine, settings=_settings(200))
