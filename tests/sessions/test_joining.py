"""How a replica joins a group: who sends what, who is refused, and which counts it takes over."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from samba_onnx.errors import ScheduleError, UsageError
from samba_onnx.pef.manifest import Cause, Direction, Manifest, Symbol
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.replicas.group import Replicas
from samba_onnx.runtime.reducing import GradientReduction, ReductionMode
from samba_onnx.sessions.data_parallel import DataParallel, checked_mode
from tests.report.samples import all_on_rdu, transfer

SYMBOLS = [
    Symbol(name, kind, "tensor(float)", (2,), name)
    for name, kind in (
        ("empty", SymbolKind.WEIGHT),
        ("w", SymbolKind.WEIGHT),
        ("b", SymbolKind.BUFFER),
        ("unplanned", SymbolKind.WEIGHT),
        ("passing", SymbolKind.WEIGHT),
        ("x", SymbolKind.INPUT),
    )
]
MANIFEST = replace(
    all_on_rdu(),
    symbols=tuple(SYMBOLS),
    # Its section reads "passing", which therefore does not stay.
    sections=tuple(replace(each, weights=("passing",)) for each in all_on_rdu().sections),
    graphs=tuple(
        replace(
            each,
            inputs=("x",),
            load_transfers=tuple(
                transfer(name, 8, Direction.HOST_TO_RDU, Cause.WEIGHT, None)
                for name in ("empty", "w", "b", "passing", "x")
            ),
        )
        for each in all_on_rdu().graphs
    ),
)


@dataclass
class Group:
    """Replicas of which the first one has other values than this one by so much."""

    rank: int
    size: int = 2
    by: float = -0.0
    others: Any = None
    """What other replicas say instead of what this one says; by the type of that."""
    sent: list[list[float]] = field(default_factory=list)

    def from_first(self, value: Any) -> Any:
        if isinstance(value, list):
            return value if self.rank == 0 else ["w", "b"]
        return (value, "of the first")

    def of_all(self, value: Any) -> list[Any]:
        return (self.others or {}).get(type(value), lambda own: [own] * self.size)(value)

    def broadcast(self, values: Any) -> None:
        if self.rank == 0:
            self.sent.append(values.tolist())
        else:
            values[...] = np.array(VALUES[len(self.sent)]) + self.by
            self.sent.append(values.tolist())


VALUES = ([1.0, -0.0], [3.0, 4.0])


class Device:
    """Memory with values of w and b."""

    def __init__(self) -> None:
        self.values = {n: np.array(v, np.float32) for n, v in zip("wb", VALUES, strict=True)}
        # What the PEF does not load, or not into the device for good, stays.
        self.values |= dict.fromkeys(("unplanned", "passing", "x"), np.ones(2, np.float32))
        self.read_names: list[str] = []
        self.reductions = SimpleNamespace(reducer=None)
        self.memory = SimpleNamespace(
            whole=lambda name: SimpleNamespace(load=lambda: self.values[name])
        )

    def read(self, name: str) -> Any:
        self.read_names.append(name)
        if name not in self.values:
            raise ScheduleError("no value")
        return self.values[name]

    def load(self, values: dict[str, Any]) -> None:
        self.values |= values


class Counts:
    """What a program counts."""

    rounding_seed = 5

    def __init__(self, forward: int = 0, rounding: tuple[str, ...] = ()) -> None:
        self.steps_done, self.rounding_names = (forward, 2), rounding
        self.resumed: list[Any] = []

    def resume_from(self, steps: Any) -> None:
        self.resumed.append(steps)

    def round_as(self, seed: Any) -> None:
        self.resumed.append(seed)


def joined(
    patch: pytest.MonkeyPatch,
    group: Group,
    counts: Counts | None = None,
    *types: SectionType,
    manifest: Manifest = MANIFEST,
) -> tuple[Device, Any]:
    """A device and its program after a run joined."""
    patch.setattr(Replicas, "current", lambda _known: group)
    device = Device()
    pef = SimpleNamespace(manifest=manifest, path="mine.pef")
    program: Any = SimpleNamespace(
        device=device,
        manifest=manifest,
        required_pef=lambda: pef,
        hyperparameters=counts or Counts(),
    )
    parallel = DataParallel(program)
    reduction = parallel.reduction(True, "inorder", False)
    plan: Any = SimpleNamespace(section_types=frozenset(types or {SectionType.FWD}))
    assert not parallel.is_joined(device)  # type: ignore[arg-type]
    parallel.join(device, reduction, plan)  # type: ignore[arg-type]
    assert parallel.is_joined(device)  # type: ignore[arg-type]
    assert parallel.rank == group.rank
    assert device.reductions.reducer is group
    return device, program


def test_the_first_sends_what_its_device_has(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(0)
    _, program = joined(monkeypatch, group)
    assert group.sent == [*VALUES]
    assert program.hyperparameters.resumed == [((0, 2), "of the first")]


def test_another_takes_what_the_first_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counts(rounding=("seed",))
    device, _ = joined(monkeypatch, Group(1, by=2), counts)
    assert [device.values[name].tolist() for name in "wb"] == [[3, 2], [5, 6]]
    # Each value is copied to this device, and none from it.
    assert device.read_names == []
    assert counts.resumed == [((0, 2), "of the first"), (5, "of the first")]


LATE = (SectionType.BCKWD, SectionType.OPT)


@pytest.mark.parametrize(
    ("by", "forward", "types", "refused"),
    [
        (1, 1, LATE, True),
        (1, 1, (SectionType.OPT,), True),
        (1, 0, LATE, False),
        (-0.0, 1, LATE, False),
        (1, 1, (SectionType.FWD, *LATE), False),
        (1, 1, (SectionType.REDUCE,), False),
        # By bytes: the first one has 0.0 where this one has -0.0.
        (0.0, 1, LATE, True),
    ],
)
def test_what_other_weights_computed_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, by: float, forward: int, types: Any, refused: bool
) -> None:
    if refused:
        with pytest.raises(UsageError, match="different weights when they ran FWD"):
            joined(monkeypatch, Group(1, by=by), Counts(forward), *types)
    else:
        joined(monkeypatch, Group(1, by=by), Counts(forward), *types)


def test_one_replica_with_other_weights_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {bool: lambda own: [False, own, True]}
    with pytest.raises(UsageError, match="different weights"):
        joined(monkeypatch, Group(1, 3, others=others), Counts(1), *LATE)


PROGRAMS: dict[str, tuple[Any, str]] = {
    "one more": (
        lambda own: [own[:-1], own, own],
        r"rank 1, 2 is not that of rank 0: tensor 5 is missing on rank 0 and input x .* on rank 1;",
    ),
    "one less": (
        lambda own: [own, own[:1], own],
        r"rank 0: tensor 1 is weight w tensor\(float\) \[2\] on rank 0 and missing on rank 1;",
    ),
    "sections": (
        lambda own: [own, own, own],
        "their tensors are the same, their sections are not; this one, rank 2, has mine.pef: give",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_programs_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    tensors, words = PROGRAMS[name]
    others = {str: lambda own: ["another", own, own], list: tensors}
    with pytest.raises(UsageError, match=words):
        joined(monkeypatch, Group(2, 3, others=others))


def test_prints_are_of_the_whole_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    prints: list[str] = []

    def keep(own: str) -> list[str]:
        prints.append(own)
        return [own, own]

    section = MANIFEST.sections[0]
    others = (
        MANIFEST,
        replace(MANIFEST, level="o0"),
        replace(MANIFEST, symbols=MANIFEST.symbols[:-1]),
        replace(MANIFEST, sections=(replace(section, flops=section.flops + 1),)),
    )
    for manifest in others:
        joined(monkeypatch, Group(1, others={str: keep}), manifest=manifest)
    assert len(set(prints)) == len(others)
    joined(monkeypatch, Group(1, others={str: keep}), manifest=replace(MANIFEST))
    assert prints[-1] == prints[0]


def test_how_a_run_reduces(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    groups = [Group(1), Group(1), Group(0, 1)]

    def current(known: Any) -> Group:
        asked.append(known)
        return groups[min(len(asked) // 3, 2)]

    monkeypatch.setattr(Replicas, "current", current)
    program: Any = SimpleNamespace(device=None)
    parallel = DataParallel(program)
    assert parallel.reduction(False, "normal", True) is None
    assert asked == []
    parallel.traced_mode = "optimal"
    for mode, on_rdu, expected in (
        ("normal", True, ReductionMode.OPTIMAL),
        ("inorder", False, ReductionMode.INORDER),
    ):
        made = parallel.reduction(True, mode, on_rdu)
        assert made == GradientReduction(expected, 2, on_rdu)
    # The group that is known is asked first whether it is still the one.
    assert asked == [None, groups[0]]
    assert parallel.reduction(True, "normal", True) is not None
    for _ in range(3):
        last = parallel.reduction(True, "normal", True)
    assert last is None
    with pytest.raises(
        UsageError, match=r"^data_parallel_mode is 'fast'; give one of normal, inorder, optimal$"
    ):
        checked_mode("fast")
