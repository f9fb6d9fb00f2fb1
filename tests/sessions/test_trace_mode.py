"""While a graph is traced values do not count, and lazy parameters stay lazy."""

from __future__ import annotations

import pytest

from samba_onnx.sessions.trace_mode import TraceMode
from samba_onnx.tensor.lazy_parameters import LAZY
from samba_onnx.tensor.random_values import DrawingOptions


def test_the_mode_is_on_inside_only() -> None:
    mode = TraceMode()
    assert (mode.tracing, mode.use_static_functional()) == (False, False)
    with mode.on():
        assert (mode.tracing, mode.use_static_functional()) == (True, True)
        with mode.on():
            assert mode.tracing
        assert mode.tracing
    assert not mode.tracing
    with pytest.raises(KeyError), mode.on():
        raise KeyError
    assert not mode.tracing


def test_lazy_parameters_count_as_static() -> None:
    mode = TraceMode()
    LAZY.enable(None, DrawingOptions())
    try:
        assert mode.use_static_functional()
        assert not mode.tracing
    finally:
        LAZY.disable()
