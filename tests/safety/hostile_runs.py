"""Models that keep every rule, and are wrong or do harm all the same when they run."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto, helper

from tests.safety.small_models import (
    INT64,
    integers,
    model,
    node,
    value,
    weight,
    with_weight,
)

Entry = tuple[str, str, onnx.ModelProto]
INT64_MIN, INT32_MIN = -(1 << 63), -(1 << 31)


def only_at_run_time() -> Iterator[tuple[str, str, onnx.ModelProto]]:
    """Models that keep every rule; inference of shapes or a run must find them."""
    body = helper.make_graph(
        [node("Identity", ["k"], ["k2"], name="go_on"), node("Add", ["a", "a"], ["a2"])],
        "body",
        [value("i", [], INT64), value("k", [], TensorProto.BOOL), value("a")],
        [value("k2", [], TensorProto.BOOL), value("a2")],
    )
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    yield (
        "endless_loop",
        "a loop without end",
        model([node("Loop", ["", "true", "x"], ["y"], body=body)], initializers=[true]),
    )
    doubling = [
        node("Concat", [f"v{n}", f"v{n}"], [f"v{n + 1}"], axis=0, name=f"double{n}")
        for n in range(40)
    ]
    yield (
        "doubling_concat",
        "2^40 rows",
        model([node("Relu", ["x"], ["v0"]), *doubling, node("Relu", ["v40"], ["y"], name="last")]),
    )
    doubling_weight = [node("Identity", ["w"], ["v0"]), *doubling]
    yield (
        "doubling_constant",
        "2^40 rows of a constant",
        model([*doubling_weight, node("Add", ["x", "v40"], ["y"])], initializers=[weight()]),
    )
    yield (
        "matmul_mismatch",
        "inner dimensions 3 and 4",
        model([node("MatMul", ["x", "w"], ["y"])], initializers=[weight((4, 5))]),
    )
    yield "broadcast_mismatch", "shapes [2, 3] and [5, 7]", with_weight(weight((5, 7)))
    yield (
        "output_type_contradicted",
        "declared int64, computed float",
        model([node("Relu", ["x"], ["y"])], outputs=[value("y", [2, 3], INT64)]),
    )
    yield (
        "types_mixed",
        "float plus int64",
        model([node("Add", ["x", "w"], ["y"])], initializers=[integers("w", [1, 2, 3])]),
    )
    yield from _long_vectors()
    zero = [node("Sub", ["a", "a"], ["b"]), node("Div", ["a", "b"], ["y"])]
    yield (
        "division_by_computed_zero",
        "x / (x - x)",
        model(
            zero, inputs=[], initializers=[integers("a", [7])], outputs=[value("y", None, INT64)]
        ),
    )
    least = [node("Neg", ["a"], ["b"]), node("Div", ["c", "b"], ["y"])]
    yield (
        "division_overflows_computed",
        "INT_MIN / -(1)",
        model(
            least,
            inputs=[],
            initializers=[integers("a", [1]), integers("c", [INT64_MIN])],
            outputs=[value("y", None, INT64)],
        ),
    )


def _long_vectors() -> Iterator[Entry]:
    """What onnx would propagate element by element while it infers shapes."""
    made = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Mul", ["n", "n"], ["m"]),
        node("ConstantOfShape", ["m"], ["t"]),
        node("Cast", ["t"], ["c"], to=INT64),
        node("Concat", ["c", "c"], ["y"], axis=0),
    ]
    yield (
        "long_vector_computed",
        "2^34 elements, known only once the content of a shape is",
        model(
            made,
            inputs=[value("x", [1 << 17, 1])],
            outputs=[value("y", None, INT64)],
            initializers=[integers("zero", [0])],
        ),
    )
    grow = [
        node("Concat", [f"v{n}", f"v{n}"], [f"v{n + 1}"], axis=0, name=f"double{n}")
        for n in range(38)
    ]
    yield (
        "long_vector_doubled",
        "2^39 integers",
        model(
            [node("Shape", ["x"], ["v0"]), *grow, node("Neg", ["v38"], ["y"], name="last")],
            outputs=[value("y", None, INT64)],
        ),
    )
