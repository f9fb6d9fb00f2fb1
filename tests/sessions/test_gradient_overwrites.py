"""Of which runs it is said that they overwrite gradients that no optimizer has read."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.sessions.gradient_overwrites import GradientOverwrites

PLANS: dict[str, Any] = {
    name: SimpleNamespace(goes_backward=back, updates=steps, batches=batches, written=written)
    for name, back, steps, batches, written in (
        ("forward", False, False, 0, {"y"}),
        ("backward", True, False, 0, {"one", "two", "y"}),
        ("backward of one", True, False, 0, {"one"}),
        ("backward of two", True, False, 0, {"two"}),
        ("backward of nothing", True, False, 0, {"y"}),
        ("step", False, True, 0, {"w"}),
        ("whole", True, True, 0, {"one", "two", "w"}),
        ("one mini-batch", True, False, 1, {"one"}),
        ("two mini-batches", True, False, 2, {"one"}),
        ("steps of mini-batches", True, True, 3, {"two", "w"}),
    )
}
RUNS = [
    (["backward", "backward"], 1),
    (["backward", "step", "backward"], 0),
    (["backward", "forward", "backward"], 1),
    (["whole", "whole"], 0),
    (["whole", "backward", "step", "whole"], 0),
    (["backward", "whole"], 1),
    (["backward", "backward", "backward", "whole", "two mini-batches"], 1),
    (["backward of one", "backward of two"], 0),
    (["backward of one", "backward of two", "backward of one"], 1),
    (["backward", "backward of nothing"], 0),
    (["one mini-batch"], 0),
    (["two mini-batches"], 1),
    (["steps of mini-batches", "steps of mini-batches"], 0),
    (["backward of one", "steps of mini-batches", "backward of one"], 0),
    (["step", "backward"], 0),
]


def watch(*types: SectionType) -> GradientOverwrites:
    kinds = {"one": SymbolKind.GRADIENT, "two": SymbolKind.GRADIENT, "y": SymbolKind.OUTPUT}
    symbols = [SimpleNamespace(name=name, kind=kind) for name, kind in kinds.items()]
    manifest: Any = SimpleNamespace(
        sections=[SimpleNamespace(type=one) for one in types], symbols=symbols
    )
    return GradientOverwrites(manifest)


@pytest.mark.parametrize(("runs", "warnings"), RUNS)
def test_it_is_said_once(runs: list[str], warnings: int, caplog: pytest.LogCaptureFixture) -> None:
    watching = watch(SectionType.FWD, SectionType.BCKWD, SectionType.OPT)
    with caplog.at_level(logging.WARNING, "samba_onnx.sessions.gradient_overwrites"):
        for name in runs:
            watching.ran(PLANS[name])
    assert len(caplog.messages) == warnings
    assert all(text.startswith("BCKWD ran again before OPT") for text in caplog.messages)


def test_nothing_is_said_where_gradients_are_added_up(caplog: pytest.LogCaptureFixture) -> None:
    watching = watch(SectionType.ZEROGRAD, SectionType.BCKWD)
    with caplog.at_level(logging.WARNING):
        for name in ("backward", "backward", "two mini-batches"):
            watching.ran(PLANS[name])
    assert caplog.messages == []
