"""In a child process: run an ONNX model once and write its outputs.

``safety.sampling`` starts it by its name. It imports no more than it needs, for every conversion waits
for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from samba_onnx.runtime.engine.onnxruntime.sessions import make_session
from samba_onnx.runtime.engine.onnxruntime.values import HostSession
from samba_onnx.runtime.engine.protocol import EngineSettings, Rewriting
from samba_onnx.safety.exchange import read_arrays, write_arrays

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
)
"""Signs that onnxruntime lacks something, not that the model is wrong."""


def sample(
    model: str,
    inputs: str,
    records: list[dict[str, Any]],
    outputs: str,
    names: list[str] | None,
    threads: int | None,
) -> dict[str, Any]:
    """Run a model once.

    Args:
        model: Path of the ONNX model.
        inputs: Path of the input arrays, as ``exchange.write_arrays`` left it.
        records: What it said about them.
        outputs: Where the output arrays shall go.
        names: The outputs wanted; None for all.
        threads: Threads of one operator; None for onnxruntime's choice.

    Returns:
        Either ``records`` of the outputs, or ``not_sampled`` with the reason. Whatever onnxruntime
        raises on a model that is wrong passes through.
    """
    # The plainest reading of the model, and for a single run the quickest: nothing is rewritten,
    # and weights stay in their file.
    settings = EngineSettings(threads, prepack=False, rewriting=Rewriting.NONE)
    try:
        session = HostSession(make_session(model, settings), names)
    except Exception as error:
        if any(sign in str(error) for sign in _UNABLE):
            return {"not_sampled": f"onnxruntime cannot run it: {_first_line(error)}"}
        raise
    for name, kind in (*session.inputs.items(), *session.outputs.items()):
        if not kind.startswith("tensor(") or kind[7:].startswith(_PACKED):
            return {"not_sampled": f"value {name!r} is of type {kind}"}
    feed = read_arrays(Path(inputs), records)
    try:
        results = dict(zip(session.outputs, session.run(feed), strict=True))
    except Exception as error:
        if not feed or "alloc" in str(error).lower():
            raise  # without inputs, it cannot be those that are at fault
        return {"not_sampled": f"onnxruntime failed on sample inputs: {_first_line(error)}"}
    return {"records": write_arrays(Path(outputs), results)}


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:400] if str(error) else type(error).__name__
