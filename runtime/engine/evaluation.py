"""Runs one model once, for whoever compares: verification, and the check against eager torch."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import onnx

from samba_onnx.errors import ExecutionError
from samba_onnx.facts.defaults import DEFAULT_ENGINE
from samba_onnx.runtime.engine.neighbours import MOVES, moved
from samba_onnx.runtime.engine.protocol import (
    Computation,
    Engine,
    EngineSettings,
    HostComputation,
    Rewriting,
)
from samba_onnx.runtime.engine.registry import make_engine
from samba_onnx.runtime.engine.settings import engine_settings
from samba_onnx.runtime.engine.unrounding import exact_form, needs_exact_form

_ORIGINAL: Final = "the original model"


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


@dataclass(frozen=True)
class OriginalModel:
    """Somebody else's model, prepared as it is and, where that differs, in float32 without rounding."""

    engine: Engine
    computation: HostComputation
    wide: HostComputation | None
    """What answers in float32; None where the model has no numbers of 16 bits and quantises nothing, where
    nobody asked for it, or where the engine cannot compute the model so."""
    departure: str = ""
    """Says which kernels of the engine are not used, as they are wrong on this machine; empty where all are."""
    plain: Callable[[], OriginalModel | None] = lambda: None
    """Prepares the same as it stands, without what an engine does for speed: sums have another order then."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Values of inputs that no caller gives, by name."""

    def with_feeds(self, constants: Mapping[str, Any]) -> OriginalModel:
        """Return the model with values for some of its inputs, which runs are not given then.

        Args:
            constants: The values by name of input.
        """
        return replace(self, constants=dict(constants))

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model in its own types.

        Args:
            feeds: Values by input name.

        Returns:
            Its outputs by name, in order.

        Raises:
            ExecutionError: An operator failed; names it.
        """
        return _run(self.engine, self.computation, {**feeds, **self.constants}, _ORIGINAL)

    def run_wide(self, feeds: Mapping[str, Any]) -> dict[str, Any] | None:
        """Run the model in float32, without rounding to whole numbers.

        Args:
            feeds: Values by input name, of the model's own types.

        Returns:
            Its outputs by the names that they have in the model; None where it has no such form, or
            that form fails.
        """
        if self.wide is None:
            return None
        try:
            values = _run(self.engine, self.wide, {**feeds, **self.constants}, _ORIGINAL)
        except ExecutionError:
            return None  # a kernel that float32 lacks; the model itself was run before
        return dict(zip(self.computation.outputs, values.values(), strict=True))

    def run_otherwise(
        self, feeds: Mapping[str, Any], *, wide: bool = False
    ) -> tuple[dict[str, Any], ...]:
        """Return answers that are as right as that of the model: how far they are apart is its own error.

        1. The model is executed node by node as it stands, so that the engine adds up in another order.
        2. Its inputs move by a unit of their last place (:func:`~samba_onnx.runtime.engine.neighbours.moved`).

        Args:
            feeds: Values by input name.
            wide: Whether it is run in float32, without rounding to whole numbers.

        Returns:
            For each its outputs by name; fewer, where the engine fails.
        """
        others: list[tuple[OriginalModel, Mapping[str, Any]]] = [
            (self, moved(feeds, seed)) for seed in range(MOVES)
        ]
        plain = self.plain()
        if plain is not None:
            others.append((plain.with_feeds(self.constants), feeds))
        answers = []
        for model, given in others:
            with contextlib.suppress(ExecutionError):
                answers.append(model.run_wide(given) if wide else model.run(given))
        return tuple(answer for answer in answers if answer is not None)


def open_original(
    model: str | os.PathLike[str] | onnx.ModelProto,
    *,
    engine: str = DEFAULT_ENGINE,
    threads: int | None = None,
    wide: bool = False,
    custom_ops: Sequence[str | os.PathLike[str]] = (),
) -> OriginalModel:
    """Prepare somebody else's model as it is.

    Args:
        model: A path (which may have external data beside it) or a model in memory.
        engine: Name of what runs it.
        threads: Threads inside operators; all cores where None.
        wide: Whether to prepare it in float32, too, if it has numbers of 16 bits or quantises.
        custom_ops: Shared libraries with operators of custom domains, in onnxruntime's form.

    Returns:
        The model, ready to be run many times.

    Raises:
        UsageError: There is no such engine, or it cannot load a library.
        ExecutionError: The engine cannot run it; names the operator and what the engine says of it.
    """
    settings = engine_settings(threads, custom_ops=custom_ops)
    source = model if isinstance(model, onnx.ModelProto) else Path(model)
    as_it_stands = replace(settings, rewriting=Rewriting.NONE)

    def plain() -> OriginalModel | None:
        try:
            return _opened(make_engine(engine, as_it_stands), source, wide=wide)
        # It is one of several ways to judge the error of the model: without it the others remain.
        except ExecutionError:
            return None

    opened = _opened(make_engine(engine, settings), source, wide=wide)
    # Made when it is first asked for, and once: a second session takes as long to prepare as the
    # first, and as much memory.
    return replace(opened, plain=functools.cache(plain))


def _opened(engine: Engine, source: onnx.ModelProto | Path, *, wide: bool) -> OriginalModel:
    computation = engine.open(source, _ORIGINAL)
    if not wide:
        return OriginalModel(engine, computation, None)
    if isinstance(source, onnx.ModelProto):
        proto, folder = source, ""
    else:
        # The graph alone: the engine finds weights in their files, however large these are.
        proto = onnx.load(source, load_external_data=False)
        folder = str(source.absolute().parent)
    exact = _open_wide(engine, proto, folder)
    return OriginalModel(engine, computation, exact, engine.departure(proto))


def _open_wide(engine: Engine, proto: onnx.ModelProto, folder: str) -> HostComputation | None:
    wide = exact_form(proto) if needs_exact_form(proto) else None
    if wide is None:
        return None
    try:
        return engine.open(wide, _ORIGINAL, folder)
    except ExecutionError:
        return None


def evaluate_original(
    model: str | os.PathLike[str] | onnx.ModelProto,
    feeds: Mapping[str, Any],
    *,
    engine: str = DEFAULT_ENGINE,
    threads: int | None = None,
) -> dict[str, Any]:
    """Run somebody else's model once, as it is.

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
    return open_original(model, engine=engine, threads=threads).run(feeds)


def _prepared(model: onnx.ModelProto, engine: str) -> tuple[Engine, HostComputation, str]:
    # What comes out is compared with other computations, so that nothing may change numbers.
    executor = make_engine(engine, EngineSettings(rewriting=Rewriting.EXACT))
    title = f"graph {model.graph.name!r}" if model.graph.name else "the graph"
    return executor, executor.prepare(Computation(model, title, rounds_as_device=True)), title


def _run(
    engine: Engine, computation: HostComputation, feeds: Mapping[str, Any], title: str
) -> dict[str, Any]:
    # An input that is missing is left to the engine, whose error names it.
    read = {name: feeds[name] for name in computation.inputs if name in feeds}
    try:
        values = computation.run(read)
    except engine.failures as error:
        reason = engine.reason(error)
        raise ExecutionError(f"{title} failed: {reason}", reason=reason) from None
    return dict(zip(computation.outputs, values, strict=True))
