"""In a child process: run an ONNX model and write its outputs.

``safety.sampling`` starts it by its name. It imports no more than it needs, for every conversion waits
for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samba_onnx.runtime.engine.neighbours import moved
from samba_onnx.runtime.engine.onnxruntime.sessions import (
    AS_WRITTEN,
    make_session,
    may_be_inaccurate,
    ort_errors,
    reason_of,
    refuse_unusable_libraries,
)
from samba_onnx.runtime.engine.onnxruntime.values import HostSession
from samba_onnx.runtime.engine.protocol import LACKING_HERE, EngineSettings, Rewriting
from samba_onnx.safety.exchange import read_arrays, write_arrays

if TYPE_CHECKING:
    import onnxruntime as ort

__all__ = ["sample"]

_PACKED = ("int4", "uint4", "int2", "uint2", "float4", "float6")
_UNABLE = (
    "is not a registered function/op",
    "NOT_IMPLEMENTED",
    "Unsupported model IR version",
    "only *guarantees* support for models stamped with official released onnx opset versions",
    "is under development",
    "is not currently registered or supported",
    "Could not find an implementation",
    *LACKING_HERE,
)
"""Signs that onnxruntime, or the machine, lacks something, not that the model is wrong."""


def sample(
    model: str,
    inputs: list[str],
    records: list[list[dict[str, Any]]],
    outputs: str,
    names: list[str] | None,
    wide: bool,
    threads: int | None,
    custom_ops: list[str],
) -> dict[str, Any]:
    """Run a model.

    Args:
        model: Path of the ONNX model.
        inputs: For each run the path of the input arrays, as ``exchange.write_arrays`` left it.
        records: What it said about them, for each run.
        outputs: The folder where the output arrays shall go.
        names: The outputs wanted; None for all.
        wide: Whether to run it in float32, too, if it has numbers of 16 bits or quantises.
        threads: Threads of one operator; None for onnxruntime's choice.
        custom_ops: Paths of libraries with operators of custom domains.

    Returns:
        Either the records of what was written for each run: ``outputs`` and, in float32, ``wide``,
        maybe none, and of the first run's inputs moved by a rounding ``others``, maybe none; or ``not_sampled`` with the reason. What onnxruntime raises on a model that is
        wrong passes through.
    """
    settings = _settings(threads, custom_ops)
    try:
        ort_session = _session(Path(model), settings)
    except Exception as error:
        if not any(sign in str(error) for sign in _UNABLE):
            raise _shortened(error) from None
        return {"not_sampled": f"onnxruntime cannot run it: {reason_of(error)}"}
    session = HostSession(ort_session, names)
    strange = _no_tensor(session)
    if strange:
        return {"not_sampled": strange}
    feeds = [read_arrays(Path(file), known) for file, known in zip(inputs, records, strict=True)]
    try:
        results = [dict(zip(session.outputs, session.run(feed), strict=True)) for feed in feeds]
    except Exception as error:
        if not any(feeds) or "alloc" in str(error).lower():
            raise _shortened(error) from None  # without inputs, they cannot be at fault
        return {"not_sampled": f"onnxruntime failed on sample inputs: {reason_of(error)}"}
    declared = [value.name for value in ort_session.get_outputs()]
    widened = _wide(Path(model), settings, feeds) if wide else []
    chosen = [{n: values[declared.index(n)] for n in session.outputs} for values in widened]
    answers = {"outputs": results, "wide": chosen, "others": _otherwise(session, feeds)}
    return {kind: _written(Path(outputs), kind, runs) for kind, runs in answers.items()}


def _settings(threads: int | None, custom_ops: list[str]) -> EngineSettings:
    # The plainest reading of the model, and for few runs the quickest: nothing is rewritten,
    # and weights stay in their file.
    settings = EngineSettings(
        threads, prepack=False, rewriting=Rewriting.NONE, custom_ops=tuple(custom_ops)
    )
    refuse_unusable_libraries(settings)
    return settings


def _shortened(error: Exception) -> Exception:
    """Return an exception of onnxruntime's with its reason as one sentence; others as they are."""
    return type(error)(reason_of(error)) if isinstance(error, ort_errors()) else error


def _no_tensor(session: HostSession) -> str:
    """Name a value that cannot be exchanged with the parent; empty if there is none."""
    for name, kind in (*session.inputs.items(), *session.outputs.items()):
        if not kind.startswith("tensor(") or kind[7:].startswith(_PACKED):
            return f"value {name!r} is of type {kind}"
    return ""


def _otherwise(session: HostSession, feeds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run the first inputs again, moved by a unit of their last place; return no run where none moves."""
    feed = feeds[0] if feeds else {}
    near = moved(feed, 0)
    if all(near[name] is value or (near[name] == value).all() for name, value in feed.items()):
        return []
    try:
        return [dict(zip(session.outputs, session.run(near), strict=True))]
    except Exception:  # the sample is complete without this answer
        return []


def _written(folder: Path, kind: str, runs: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Write the arrays of each run to a file of its own."""
    return [
        write_arrays(folder / f"{kind}.{number}.safetensors", arrays)
        for number, arrays in enumerate(runs)
    ]


def _session(model: Path, settings: EngineSettings) -> ort.InferenceSession:
    """Make a session of a model, in another form if onnxruntime cannot run it as it is."""
    source: bytes | str = str(model)
    folder = ""
    # Imports of originals take longer than most models do, and few models need them.
    if may_be_inaccurate(model):
        from samba_onnx.runtime.engine.onnxruntime.originals import accurate_source

        source, folder = accurate_source(model)
    try:
        return make_session(source, settings, folder=folder, entries=AS_WRITTEN)
    except Exception as error:
        if not any(sign in str(error) for sign in _UNABLE):
            raise
        from samba_onnx.runtime.engine.onnxruntime.originals import runnable_source

        runnable = runnable_source(model)
        if runnable is None:
            raise
    return make_session(runnable[0], settings, folder=runnable[1])


def _wide(
    model: Path, settings: EngineSettings, feeds: list[dict[str, Any]]
) -> list[Sequence[Any]]:
    """Run a model in float32 without rounding; return all outputs of each run, or no run at all."""
    from samba_onnx.runtime.engine.onnxruntime.originals import wide_source

    source = wide_source(model)
    if source is None:
        return []
    try:
        session = HostSession(make_session(source[0], settings, folder=source[1]))
        return [session.run(feed) for feed in feeds]
    except Exception:  # whatever it lacks in float32: the sample is complete without these answers
        return []
