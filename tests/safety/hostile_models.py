"""Hostile ONNX files, one per way in which a model can be wrong or mean harm.

``hostile_models(folder)`` writes them all and yields one case each. A case that only a run or a
shape inference can find says so in ``detected_by``; every other one must be refused while loading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import onnx

from tests.safety.hostile_external import EXTERNAL
from tests.safety.hostile_files import FILES
from tests.safety.hostile_functions import functions
from tests.safety.hostile_graphs import graphs
from tests.safety.hostile_numbers import numbers
from tests.safety.hostile_runs import only_at_run_time
from tests.safety.hostile_tensors import tensors

__all__ = ["HostileCase", "hostile_models"]

Stage = Literal["load", "convert"]
Maker = Callable[[Path], Path]


@dataclass(frozen=True)
class HostileCase:
    """One file."""

    name: str
    path: Path
    why: str
    """What is wrong with it."""
    detected_by: Stage = "load"


def hostile_models(folder: Path) -> Iterator[HostileCase]:
    """Write all hostile files below ``folder``, each in a folder of its own.

    Beside those folders lies ``secret.bin``, which the models try to reach and nothing may open.
    """
    (folder / "secret.bin").write_bytes(bytes(range(256)) * 4)
    for name, why, make in FILES:
        yield HostileCase(name, make(_room(folder, name)), why)
    for name, why, write in EXTERNAL:
        room = _room(folder, name)
        yield HostileCase(name, _save(write(room), room), why)
    protos = (*graphs(), *numbers(), *functions(), *tensors())
    for name, why, proto in protos:
        yield HostileCase(name, _save(proto, _room(folder, name)), why)
    for name, why, proto in only_at_run_time():
        yield HostileCase(name, _save(proto, _room(folder, name)), why, "convert")


def _room(folder: Path, name: str) -> Path:
    room = folder / name
    room.mkdir()
    return room


def _save(proto: onnx.ModelProto | bytes, room: Path) -> Path:
    path = room / "model.onnx"
    path.write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
    return path
