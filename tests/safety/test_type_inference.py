"""onnxruntime infers in a child, and what it does not know is not made up."""

from __future__ import annotations

import onnx
import pytest

from samba_onnx.errors import ExecutionError, ModelLimitError
from samba_onnx.safety.type_inference import OutputType, channel_block, infer_output_types

HEADER = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>\n'


def infer(text: str) -> dict[str, OutputType]:
    """Return what onnxruntime says of the outputs of a model in text form."""
    return infer_output_types(onnx.parser.parse_model(HEADER + text))


def test_types_and_shapes_through_operators_of_onnxruntime() -> None:
    found = infer("""g (float[n,4] x, float u, float[6] q, int64[k] sh, string[2] s) => (a, b, c, d, e)
    {
        a = com.microsoft.Gelu(x)
        b = com.microsoft.QuickGelu(u)
        c = Reshape(q, sh)
        d = SequenceConstruct(a, a)
        e = Identity(s)
    }""")
    assert found == {
        "a": OutputType("tensor(float)", ("n", 4)),
        "b": OutputType("tensor(float)", ()),
        "c": OutputType("tensor(float)", None),  # of unknown rank, and no scalar
        "d": OutputType("seq(tensor(float))", None),
        "e": OutputType("tensor(string)", (2,)),
    }


def test_nothing_is_run() -> None:
    # On these constants the division would end the process.
    text = """g () => (y) <int64[1] b={-1}> {
        a = Constant<value_ints=[-9223372036854775808]>()
        y = Div(a, b)
    }"""
    assert infer(text) == {"y": OutputType("tensor(int64)", (1,))}


def test_what_onnxruntime_refuses_is_one_error() -> None:
    with pytest.raises(ExecutionError, match=r"com\.example:Thing"):
        infer_output_types(
            onnx.parser.parse_model(
                '<ir_version: 8, opset_import: ["": 17, "com.example": 1]> '
                "g (float[2] x) => (y) { y = com.example.Thing(x) }"
            )
        )


def test_time_is_limited() -> None:
    model = onnx.parser.parse_model(HEADER + "g (float[2] x) => (y) { y = Relu(x) }")
    with pytest.raises(ModelLimitError, match=r"0\.01 s"):
        infer_output_types(model, seconds=0.01)


def test_channels_of_a_block_are_asked_for_in_a_child() -> None:
    assert channel_block() in (4, 8, 16, 32)
