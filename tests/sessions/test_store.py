"""Device memory by place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.sessions.profiler import GET_TENSORS, SET_TENSORS
from samba_onnx.sessions.store import compiled_values, places
from samba_onnx.tensor import DEVICE
from tests.sessions.conftest import Compiled, Parts


def symbol(
    name: str, region: str, kind: SymbolKind = SymbolKind.WEIGHT, type_: str = "float"
) -> Symbol:
    return Symbol(name, kind, f"tensor({type_})", (2,), region)


def test_places_are_names_and_the_first_of_each_region() -> None:
    first, second = symbol("first", "shared"), symbol("second", "shared")
    own, other = symbol("own", "own"), symbol("other", "second")
    manifest: Any = SimpleNamespace(symbols=[first, second, own, other, symbol("host", "")])
    assert places(manifest) == {
        "shared": first,
        "first": first,
        "own": own,
        "other": other,
        # Not other, whose region is called so.
        "second": second,
    }


def test_only_what_persists_is_stored_in_another_type() -> None:
    values = np.array([1.0, 1 / 3], np.float32)
    for kind in (SymbolKind.WEIGHT, SymbolKind.BUFFER):
        stored = compiled_values(symbol("w", "w", kind, "bfloat16"), values)
        assert str(stored.dtype) == "bfloat16"
        assert compiled_values(symbol("w", "w", kind), values) is values
    for kind in (SymbolKind.INPUT, SymbolKind.GRADIENT):
        assert compiled_values(symbol("x", "x", kind, "bfloat16"), values) is values


def test_copies_are_measured(parts: Parts, compiled: Compiled) -> None:
    parts.program.load(compiled.path)
    parts.program.open_device()
    assert [DEVICE.has(name) for name in ("features", "nothing")] == [True, False]
    parts.profiler.start_profile()
    DEVICE.store("features").write("features", torch.ones(2, 4))
    assert parts.profiler.names() == (SET_TENSORS,)
    assert torch.equal(DEVICE.store("features").read("features"), torch.ones(2, 4))
    assert parts.profiler.names() == (SET_TENSORS, GET_TENSORS)
