"""The engines by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from samba_onnx.errors import UsageError
from samba_onnx.facts.defaults import DEFAULT_ENGINE
from samba_onnx.runtime.engine.protocol import Engine, EngineSettings


def _onnxruntime(settings: EngineSettings) -> Engine:
    from samba_onnx.runtime.engine.onnxruntime.engine import OnnxRuntimeEngine

    return OnnxRuntimeEngine(settings)


def _reference(settings: EngineSettings) -> Engine:
    if settings.custom_ops:
        raise UsageError(
            "custom-ops libraries are for the engine onnxruntime; reference cannot load "
            f"{settings.custom_ops[0]}"
        )
    from samba_onnx.runtime.engine.reference.engine import ReferenceEngine

    return ReferenceEngine()


ENGINES: Final[Mapping[str, Callable[[EngineSettings], Engine]]] = MappingProxyType(
    {DEFAULT_ENGINE: _onnxruntime, "reference": _reference}
)
"""What makes an engine, by the name that users choose it by; each loads its library when asked."""


def make_engine(name: str, settings: EngineSettings) -> Engine:
    """Return a new engine.

    Args:
        name: One of ``ENGINES``.
        settings: How it prepares computations.

    Raises:
        UsageError: There is no such engine, it cannot load libraries of custom operators, or one of
            them is no such library.
    """
    # Before anything is loaded: a wrong name is told at once, and of all engines.
    make = ENGINES.get(name)
    if make is None:
        known = ", ".join(ENGINES)
        raise UsageError(f"engine {name!r} does not exist; there are {known}")
    return make(settings)
