"""Of which runs it is said that nobody asked for their results."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from samba_onnx.program.kinds import SectionType
from samba_onnx.sessions.unread_outputs import UnreadOutputs

SYMBOLS: Any = [
    SimpleNamespace(name=name, region=region)
    for name, region in (("own", "own"), ("host", ""), ("new", "statistics"))
]


def plan(written: set[str], *types: SectionType) -> Any:
    graph = SimpleNamespace(name="g")
    return SimpleNamespace(
        section_types=frozenset(types or {SectionType.FWD}),
        written=frozenset(written),
        schedule=SimpleNamespace(graph=graph),
    )


FORWARD = plan({"own", "host"})


@pytest.mark.parametrize(
    ("one", "outputs", "is_told"),
    [
        (FORWARD, (), True),
        (FORWARD, None, True),
        (FORWARD, [], False),
        (FORWARD, ("y",), False),
        (plan({"own", "new"}), (), False),
        (plan({"own"}, SectionType.FWD, SectionType.BCKWD), (), False),
        (plan({"own"}, SectionType.OPT), (), False),
    ],
)
def test_a_forward_run_for_nothing_is_told_of_once(
    caplog: pytest.LogCaptureFixture, one: Any, outputs: Any, is_told: bool
) -> None:
    watching = UnreadOutputs(SYMBOLS)
    with caplog.at_level(logging.WARNING, "samba_onnx.sessions.unread_outputs"):
        watching.ran(one, outputs)
        watching.ran(one, outputs)
    begin = "run was asked for no output of graph 'g' and returns an empty tuple"
    assert [text.startswith(begin) for text in caplog.messages] == [True] * is_told
