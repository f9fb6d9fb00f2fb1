"""Executes a schedule call by call with nothing in device memory but what the lifetimes of regions keep there.

After each call, what the device measures is compared with the timeline; then every value whose lifetime has
ended is forgotten. That nothing is missing later shows that the lifetimes are long enough; that a run fails
without a value one call before its lifetime ends, that they are not too long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from samba_onnx.errors import ScheduleError
from samba_onnx.pef.lifetimes import Lifetime, graph_lifetimes, timeline
from samba_onnx.pef.manifest import Graph, Manifest
from samba_onnx.pef.reader import Pef
from samba_onnx.runtime.device import Device


def steps(
    device: Device, manifest: Manifest, graph: Graph, inputs: Mapping[str, Any]
) -> list[Lifetime]:
    """Execute a graph call by call with nothing in memory but what it needs, and compare every call."""
    lifetimes = graph_lifetimes(manifest, graph)
    expected = timeline(lifetimes, len(graph.calls))
    device.run(inputs, graph=graph.name)  # residents have values now, gradients as well
    forget(device, manifest, [lifetime for lifetime in lifetimes if not lifetime.kept])
    for call in range(len(graph.calls)):
        given = inputs if call == 0 else {}
        device.run(given, [], graph=graph.name, from_call=call, until_call=call + 1)
        assert device.occupancy() == expected[call], f"call {call} of {graph.name}"
        forget(
            device,
            manifest,
            [lifetime for lifetime in lifetimes if not lifetime.kept and lifetime.last == call],
        )
    return [lifetime for lifetime in lifetimes if not lifetime.kept]


def forget(device: Device, manifest: Manifest, lifetimes: Iterable[Lifetime]) -> None:
    gone = {lifetime.region.name for lifetime in lifetimes}
    device._values.forget([symbol.name for symbol in manifest.symbols if symbol.region in gone])


def refuse_to_lack(
    device: Device, manifest: Manifest, graph: Graph, inputs: Mapping[str, Any], lifetime: Lifetime
) -> None:
    """A run in which a value is forgotten one call before its lifetime ends fails."""
    device.run(inputs, [], graph=graph.name, until_call=lifetime.last)
    forget(device, manifest, [lifetime])
    with pytest.raises(ScheduleError, match=r"would read|no value"):
        device.run({}, [], graph=graph.name, from_call=lifetime.last)


def opened(pef: Pef) -> Device:
    return Device(pef, time_sections=True)
