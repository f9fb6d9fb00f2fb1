"""A model in onnxscript: a function with an attribute, and a loop over steps."""

from onnxscript import FLOAT, script
from onnxscript import opset18 as op
from onnxscript.values import Opset

LOCAL = Opset("local", 1)


@script(LOCAL, default_opset=op)
def smoothed(x, rate: float):  # noqa: ANN001, ANN201  onnxscript reads annotations as types of tensors
    """Move a value a part of the way to its tanh."""
    kept = op.Mul(x, rate)
    return op.Add(kept, op.Mul(op.Tanh(x), 1.0 - rate))


@script(default_opset=op)
def recurrent(x: FLOAT[4, 6], w: FLOAT[6, 6]) -> FLOAT[4, 6]:
    """Add what three steps make of the mean row."""
    state = op.ReduceMean(x, [0], keepdims=1)
    for _ in range(3):
        state = smoothed(op.MatMul(state, w), rate=0.25)
    return op.Add(x, state)
