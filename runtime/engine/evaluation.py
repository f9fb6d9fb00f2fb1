"""Runs one model once, for whoever compares: verification, and the check against eager torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from samba_onnx.errors import ExecutionError
from samba_onnx.runtime.engine.protocol import (
    Computation,
    Engine,
    EngineSettings,
    HostComputation,
    Rewriting,
)
from samba_onnx.runtime.engine.registry import DEFAULT_ENGINE, make_engine


def evaluate(
    model: onnx.ModelProto, feeds: Mapping[str, Any], *, engine: str = DEFAULT_ENGINE
) -> dict[str, Any]:
    """Run a model that this product made, as the device would run it on the host.

    Args:
        model: Plain ONNX and this product's own operators, of static sizes; is changed in place.
            bfloat16 is computed as the device computes it.
        feeds: Its inputs by name, and maybe other values, which are not looked at.
        engine: Name of what runs it.

    Returns:
        Its outputs by name, in order.

    Raises:
        UsageError: There is no such engine.
        ExecutionError: The engine cannot run it; names the operator and what the engine says of it.
    """
    executor, computation, title = _prepared(model, engine)
    return _run(executor, computation, feeds, title)


def refuse_unless_runnable(model: onnx.ModelProto, *, engine: str = DEFAULT_ENGINE) -> None:
    """Let an engine prepare a model that this product made, without computing anything.

    Args:
        model: The model, as ``evaluate`` takes it; is changed in place.
        engine: Name of the engine.

    Raises:
        UsageError: There is no such engine.
        ExecutionError: The engine cannot run it; names the operator and what the engine says of it.
    """
    _prepared(model, engine)


def evaluate_original(
    model: str | os.PathLike[str] | onnx.ModelProto,
    feeds: Mapping[str, Any],
    *,
    engine: str = DEFAULT_ENGINE,
    threads: int | None = None,
) -> dict[str, Any]:
    """Run somebody else's model as it is.

    Args:
        model: A path (which may have external data beside it) or a model in memory.
        feeds: Values by input name.
        engine: Name of what runs it.
        threads: Threads inside operators; all cores where None.

    Returns:
        Its outputs by name, in order.

    Raises:
        UsageError: There is no such engine.
        ExecutionError: The engine cannot run it; names the operator and what the engine says of it.
    """
    executor = make_engine(engine, EngineSettings(threads))
    title = "the original model"
    source = model if isinstance(model, onnx.ModelProto) else Path(model)
    computation = executor.open(source, title)
    return _run(executor, computation, feeds, title)


def _prepared(model: onnx.ModelProto, engine: str) -> tuple[Engine, HostComputation, str]:
    executor = make_engine(engine, EngineSettings(rewriting=Rewriting.EXACT))
    title = f"graph {model.graph.name!r}" if model.graph.name else "the graph"
    return executor, executor.prepare(Computation(model, title, rounds_as_device=True)), title


def _run(
    engine: Engine, computation: HostComputation, feeds: Mapping[str, Any], title: str
) -> dict[str, Any]:
    read = {name: feeds[name] for name in computation.inputs if name in feeds}
    try:
        values = computation.run(read)
    except engine.failures as error:
        reason = engine.reason(error)
        raise ExecutionError(f"{title} failed: {reason}", reason=reason) from None
    return dict(zip(computation.outputs, values, strict=True))
