"""Replicas within one process: a thread and a device each, and a reducer between them made of numpy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from samba_onnx.pef.manifest import Argin
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.reducing import GradientReduction, ReductionMode
from samba_onnx.runtime.requests import run_request
from tests.runtime.building import FROM, INPUT, OUTPUT, TO, WEIGHT, Plan, build, section

_Result = TypeVar("_Result")
PATIENCE = 60.0
"""Seconds after which a replica that waits for the others fails its test."""


@dataclass
class Meeting:
    """Where replicas bring the arrays that they want means of, the first ones together, and so on."""

    size: int
    rounds: list[dict[int, Array]] = field(default_factory=list)
    done: list[threading.Event] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    votes: list[dict[int, bytes]] = field(default_factory=list)
    """By replica, for each question in their order."""

    def bring(self, rank: int, number: int, values: Array) -> threading.Event:
        with self.lock:
            while len(self.rounds) <= number:
                self.rounds.append({})
                self.done.append(threading.Event())
            arrays = self.rounds[number]
            arrays[rank] = values
            if len(arrays) == self.size:
                total = sum(arrays[one].astype(np.float64) for one in range(self.size))
                for array in arrays.values():
                    array[...] = (total / self.size).astype(array.dtype)
                self.done[number].set()
            return self.done[number]


@dataclass
class Member:
    """The reducer of one replica."""

    meeting: Meeting
    rank: int
    sizes: list[int] = field(default_factory=list)
    """Numbers in each array that was reduced."""
    events: list[str] = field(default_factory=list)
    """What was begun and waited for, in order."""
    votes: int = 0
    """How often it was asked whether all agree."""
    fails_at: int = -1
    """The number of a reduction that cannot be begun, the first time."""

    def start(self, values: Array, name: str) -> Pending:
        assert values.ndim == 1
        number = len(self.sizes)
        if number == self.fails_at:
            self.fails_at = -1
            raise ConnectionError("the cable was pulled out")
        self.sizes.append(values.size)
        self.events.append(f"start {number}")
        return Pending(self, number, self.meeting.bring(self.rank, number, values))

    def agree(self, value: bytes) -> bool:
        with self.meeting.lock:
            self.votes += 1
            while len(self.meeting.votes) < self.votes:
                self.meeting.votes.append({})
            votes = self.meeting.votes[self.votes - 1]
            votes[self.rank] = value
        deadline = time.monotonic() + PATIENCE
        while len(votes) < self.meeting.size:
            assert time.monotonic() < deadline, "another replica never voted"
            time.sleep(0.001)
        return len(set(votes.values())) == 1


@dataclass
class Pending:
    member: Member
    number: int
    done: threading.Event

    def wait(self) -> None:
        self.member.events.append(f"wait {self.number}")
        assert self.done.wait(PATIENCE), "another replica never came"


def together(works: Sequence[Callable[[], _Result]]) -> list[_Result]:
    """Return what each replica's work returns, all done at the same time."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(PATIENCE) for future in [pool.submit(work) for work in works]]


LR = np.float32(0.5)
RNG = np.random.default_rng(3)
W1 = RNG.standard_normal((8, 8)).astype(np.float32)
W2 = RNG.standard_normal((8, 3)).astype(np.float32)


def two_layers(*, clips: bool = False, accumulates: bool = False) -> Plan:
    """y = (x w1) w2, with a section per layer for the backward and for the optimizer."""
    factor = "float coefficient" if clips else "float lr"
    name = factor.split()[1]
    old = {1: "float[8,8] w1__grad__zeroed, ", 2: "float[8,3] w2__grad__zeroed, "}
    ends = ("__updated", "__zeroed") if accumulates else ("", "")
    shapes = {"w1": "float[8,8]", "w2": "float[8,3]"}

    def add(layer: int, product: str) -> str:
        gradient = f"w{layer}__grad"
        if accumulates:
            return (
                f"g{layer} = {product} {gradient}__updated = Add(g{layer}, {gradient}__zeroed) }}"
            )
        return f"{gradient} = {product} }}"

    pieces = [
        section(
            "f (float[4,8] x, float[8,8] w1, float[8,3] w2) => (float[4,8] h, float[4,3] y) "
            "{ h = MatMul(x, w1) y = MatMul(h, w2) }"
        ),
        section(
            f"b ({old[2] if accumulates else ''}float[4,8] h, float[4,3] y__grad) => "
            f"(float[8,3] w2__grad{ends[0]}) {{ t2 = Transpose(h) {add(2, 'MatMul(t2, y__grad)')}",
            type=SectionType.BCKWD,
        ),
        section(
            f"a ({old[1] if accumulates else ''}float[4,8] x, float[8,3] w2, float[4,3] y__grad) => "
            f"(float[8,8] w1__grad{ends[0]}) {{ u = Transpose(w2) d = MatMul(y__grad, u) "
            f"t1 = Transpose(x) {add(1, 'MatMul(t1, d)')}",
            type=SectionType.BCKWD,
        ),
    ]
    if accumulates:
        zeros = " ".join(f"{w}__grad__zeroed = Sub({w}__grad, {w}__grad)" for w in shapes)
        pieces.insert(
            0,
            section(
                "z (float[8,8] w1__grad, float[8,3] w2__grad) => "
                f"(float[8,8] w1__grad__zeroed, float[8,3] w2__grad__zeroed) {{ {zeros} }}",
                type=SectionType.ZEROGRAD,
            ),
        )
    grads = {w: f"{shape} {w}__grad{ends[0]}" for w, shape in shapes.items()}
    if clips:
        pieces.append(
            section(
                f"n (float lr, {grads['w1']}, {grads['w2']}) => (float coefficient) "
                f"{{ a = ReduceSumSquare<keepdims=0>({grads['w1'].split()[1]}) "
                f"b = ReduceSumSquare<keepdims=0>({grads['w2'].split()[1]}) "
                "s = Add(a, b) r = Sqrt(s) coefficient = Div(lr, r) }",
                type=SectionType.GRADNORM,
            )
        )
    pieces += [
        section(
            f"o ({shape} {w}, {grads[w]}, {factor}) => ({shape} {w}__updated) "
            f"{{ {w}d = Mul({grads[w].split()[1]}, {name}) {w}__updated = Sub({w}, {w}d) }}",
            type=SectionType.OPT,
        )
        for w, shape in shapes.items()
    ]
    reader = next(n for n, piece in enumerate(pieces) if "float lr" in str(piece.text))
    updated = {f"{w}__updated": SymbolKind.WEIGHT for w in shapes}
    made = {f"{w}__grad{end}": SymbolKind.GRADIENT for w in shapes for end in {"", *ends}}
    return Plan(
        pieces,
        ["x", "lr"],
        ["y"],
        [("x", TO, INPUT, int(accumulates)), ("y", FROM, OUTPUT, int(accumulates))],
        [("w1", WEIGHT), ("w2", WEIGHT)],
        kinds={**updated, **made, "y__grad": SymbolKind.GRADIENT},
        shared={
            **{name: name.removesuffix("__updated") for name in updated},
            **{name: name[: len("w1__grad")] for name in made},
        },
        argins=[Argin("lr", "tensor(float)", float(LR), (reader,))],
    )


def three_scales(second: str = "float") -> Plan:
    """y = x (w1 + w2 + w3), the gradient of each made by a section of its own.

    Args:
        second: Type of the second weight. Gradients of one type are one bucket.
    """
    types = {1: "float", 2: second, 3: "float"}
    weights = ", ".join(f"{kind}[8] w{number}" for number, kind in types.items())
    pieces = [
        section(
            f"f (float[4,8] x, {weights}) => (float[4,8] y) "
            "{ c2 = CastLike(w2, x) w = Sum(w1, c2, w3) y = Mul(x, w) }"
        )
    ]
    for number, kind in types.items():
        gradient, axis = f"w{number}__grad", f"axis{number}"
        to = "to = 11" if kind == "double" else "to = 1"
        pieces.append(
            section(
                f"b (float[4,8] x, float[4,8] y__grad) => ({kind}[8] {gradient}) "
                f"<int64[1] {axis} = {{0}}> {{ p{number} = Mul(x, y__grad) "
                f"s{number} = ReduceSum<keepdims=0>(p{number}, {axis}) {gradient} = Cast<{to}>(s{number}) }}",
                type=SectionType.BCKWD,
            )
        )
    names = [f"w{number}" for number in (1, 2, 3)]
    return Plan(
        pieces,
        ["x"],
        ["y"],
        [("x", TO, INPUT, 0), ("y", FROM, OUTPUT, 0)],
        [(name, WEIGHT) for name in names],
        kinds=dict.fromkeys((*(f"{w}__grad" for w in names), "y__grad"), SymbolKind.GRADIENT),
    )


def reduction(mode: str = "normal", *, on_rdu: bool = True, replicas: int = 2) -> GradientReduction:
    return GradientReduction(ReductionMode(mode), replicas, on_rdu)


def run(device: Device, x: Any, how: GradientReduction | None, **selection: Any) -> dict[str, Any]:
    """Make a run with or without input."""
    inputs = {} if x is None else {"x": x}
    request = run_request(None, inputs, [] if x is None else ["y"], reduction=how, **selection)
    return device.execute(device.prepare(request), inputs)


def open_replicas(
    stack: ExitStack,
    folder: Path,
    plan: Plan,
    size: int = 2,
    weights: Mapping[str, Array] = MappingProxyType({"w1": W1, "w2": W2}),
) -> list[tuple[Device, Member]]:
    """Return devices with the same weights, and the reducer of each; the stack closes them."""
    meeting = Meeting(size)
    replicas = []
    for rank in range(size):
        (folder / str(rank)).mkdir(parents=True, exist_ok=True)
        pef, member = stack.enter_context(build(folder / str(rank), plan)), Member(meeting, rank)
        device = stack.enter_context(Device(pef, threads=1))
        device.load(dict(weights))
        for name, weight in weights.items():
            device.write(f"{name}__grad", np.zeros_like(weight))
        device.reductions.reducer = member
        replicas.append((device, member))
    return replicas
