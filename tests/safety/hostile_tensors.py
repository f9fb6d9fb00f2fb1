"""Models whose tensors hold something else than they declare."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx
from onnx import TensorProto, helper

from tests.safety.small_models import FLOAT, INT64, model, node, value, weight, with_weight

Entry = tuple[str, str, onnx.ModelProto]


def _spoiled(change: Callable[[TensorProto], None]) -> onnx.ModelProto:
    tensor = weight()
    change(tensor)
    return with_weight(tensor)


def _set(**fields: object) -> Callable[[TensorProto], None]:
    """Replace a tensor's fields; lists are replaced whole."""

    def change(tensor: TensorProto) -> None:
        for name, content in fields.items():
            tensor.ClearField(name)
            if isinstance(content, list):
                getattr(tensor, name).extend(content)
            elif content is not None:
                setattr(tensor, name, content)

    return change


_CHANGES: tuple[tuple[str, str, Callable[[TensorProto], None]], ...] = (
    ("negative_dim", "a negative dimension", _set(dims=[-2, 3])),
    ("both_negative", "dimensions whose product is right", _set(dims=[-2, -3])),
    ("no_data", "a shape without data", _set(float_data=None)),
    ("giant_shape", "4 TB declared, none there", _set(dims=[1 << 40], float_data=None)),
    ("overflow_shape", "a size beyond 64 bits", _set(dims=[1 << 40, 1 << 40], float_data=None)),
    ("wrapping_shape", "a size that wraps to 6", _set(dims=[(1 << 62) + 3, 2 * 4])),
    ("giant_empty", "zero times giant", _set(dims=[0, 1 << 60, 1 << 60], float_data=None)),
    ("rank_1000", "a thousand dimensions", _set(dims=[1] * 1000, float_data=[1.0])),
    ("too_few", "fewer values than places", _set(float_data=[1.0])),
    ("too_many", "more values than places", _set(float_data=[1.0] * 7)),
    ("raw_short", "short raw data", _set(float_data=None, raw_data=bytes(23))),
    ("raw_long", "long raw data", _set(float_data=None, raw_data=bytes(25))),
    ("two_fields", "raw and typed data", _set(raw_data=bytes(24))),
    ("wrong_field", "integers for floats", _set(float_data=None, int32_data=[1] * 6)),
    ("unknown_type", "data type 99", _set(data_type=99)),
    ("no_type", "no data type", _set(data_type=0)),
    ("negative_type", "data type -1", _set(data_type=-1)),
    ("string_as_raw", "raw strings", _set(data_type=8, float_data=None, raw_data=b"abcdef")),
    ("string_count", "two strings for six", _set(data_type=8, float_data=None, string_data=[b"a"])),
    ("int4_short", "half of the nibbles", _set(data_type=22, float_data=None, raw_data=b"ab")),
    ("complex_half", "real parts only", _set(data_type=14)),
    (
        "large_raw_short",
        "short and large",
        _set(dims=[9999], float_data=None, raw_data=bytes(36000)),
    ),
    ("nul_in_name", "NUL in the name", _set(name="w\0")),
    ("no_name", "no name", _set(name="")),
)


def _segment() -> onnx.ModelProto:
    tensor = weight()
    tensor.segment.begin, tensor.segment.end = 0, 1 << 60
    return with_weight(tensor)


def _in_constant() -> onnx.ModelProto:
    tensor = TensorProto(name="t", dims=[1 << 40], data_type=FLOAT)
    return model([node("Constant", [], ["y"], value=tensor)], inputs=[])


def _sparse(values: list[float], indices: list[int], dims: list[int]) -> onnx.ModelProto:
    proto = model([node("Add", ["x", "w"], ["y"])])
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("w", FLOAT, [len(values)], values),
        helper.make_tensor("places", INT64, [len(indices)], indices),
        dims,
    )
    proto.graph.sparse_initializer.append(sparse)
    return proto


def _declared(kind: int, shape: list[int]) -> onnx.ModelProto:
    """The initializer is also an input, of another type or shape."""
    return model(
        [node("Add", ["x", "w"], ["y"])],
        inputs=[value("x"), value("w", shape, kind)],
        initializers=[weight()],
    )


def _input(kind: int, shape: list[int]) -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"])], inputs=[value("x", shape, kind)])


def _nested_type(depth: int) -> onnx.ModelProto:
    proto = model([node("Identity", ["x"], ["y"])])
    kind = proto.graph.input[0].type
    for _ in range(depth):
        outer = onnx.TypeProto()
        outer.sequence_type.elem_type.CopyFrom(kind)
        kind.CopyFrom(outer)
    return proto


def _untyped_input() -> onnx.ModelProto:
    proto = model([node("Relu", ["x"], ["y"])])
    proto.graph.input[0].ClearField("type")
    return proto


def tensors() -> Iterator[Entry]:
    for name, why, change in _CHANGES:
        yield f"tensor_{name}", why, _spoiled(change)
    yield "tensor_segment", "a segment", _segment()
    yield "tensor_in_constant", "4 TB declared in an attribute", _in_constant()
    yield "sparse_outside", "an index outside of the shape", _sparse([1.0], [99], [2, 3])
    yield "sparse_negative", "a negative index", _sparse([1.0], [-1], [2, 3])
    yield "sparse_count", "fewer indices than values", _sparse([1.0, 2.0], [1], [2, 3])
    yield "sparse_full", "more values than places", _sparse([1.0] * 7, list(range(7)), [2, 3])
    yield "sparse_giant", "a giant shape", _sparse([1.0], [0], [1 << 36])
    yield "sparse_overflow", "a shape beyond 64 bits", _sparse([1.0], [0], [1 << 40, 1 << 40])
    yield "sparse_negative_dim", "a negative dimension", _sparse([1.0], [0], [-2, -3])
    yield "declared_type", "declared as integers", _declared(INT64, [2, 3])
    yield "declared_shape", "declared with another shape", _declared(FLOAT, [3, 2])
    yield "declared_rank", "declared with another rank", _declared(FLOAT, [6])
    yield "input_type", "an input of type 99", _input(99, [2, 3])
    yield "input_negative", "an input of dimension -7", _input(FLOAT, [-7, 3])
    yield "input_giant", "an input beyond 64 bits", _input(FLOAT, [1 << 40, 1 << 40])
    yield "input_rank", "an input of rank 1000", _input(FLOAT, [1] * 1000)
    yield "input_nested", "a sequence of sequences of ...", _nested_type(30)
    yield "input_untyped", "an input without type", _untyped_input()
