"""Models with attributes and constants that trap or outgrow memory in native code."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto, helper

from tests.safety.small_models import (
    FLOAT,
    INT32,
    INT64,
    branch,
    integers,
    model,
    node,
    value,
)

Entry = tuple[str, str, onnx.ModelProto]
INT64_MIN, INT32_MIN = -(1 << 63), -(1 << 31)


def _numbers() -> Iterator[Entry]:
    image = [value("x", [1, 4, 8, 8])]
    filters = [helper.make_tensor("w", FLOAT, [4, 4, 1, 1], [0.0] * 16)]
    bad = {
        "group": 0,
        "strides": [0, 1],
        "dilations": [0, 0],
        "kernel_shape": [0, 0],
        "strides_negative": [-1, -1],
        "group_negative": -4,
    }
    for name, content in bad.items():
        attribute = {name.removesuffix("_negative"): content}
        yield (
            f"conv_{name}",
            f"{attribute}",
            model(
                [node("Conv", ["x", "w"], ["y"], **attribute)], inputs=image, initializers=filters
            ),
        )
    others: tuple[tuple[str, onnx.NodeProto], ...] = (
        ("pool_strides", node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[0, 0])),
        ("pool_kernel", node("AveragePool", ["x"], ["y"], kernel_shape=[0, 2])),
        ("depth_to_space", node("DepthToSpace", ["x"], ["y"], blocksize=0)),
        ("space_to_depth", node("SpaceToDepth", ["x"], ["y"], blocksize=-2)),
        ("lrn_size", node("LRN", ["x"], ["y"], size=0)),
        ("norm_groups", node("GroupNormalization", ["x", "w", "w"], ["y"], num_groups=0)),
        ("split_outputs", node("Split", ["x"], ["y"], num_outputs=0)),
        ("axis_giant", node("Softmax", ["x"], ["y"], axis=(1 << 63) - 1)),
        ("axis_least", node("Softmax", ["x"], ["y"], axis=INT64_MIN)),
        ("layer_norm_axis", node("LayerNormalization", ["x", "w"], ["y"], axis=1 << 31)),
        ("perm_giant", node("Transpose", ["x"], ["y"], perm=[0, 1, 2, 1 << 40])),
        ("random_giant", node("RandomNormal", [], ["y"], shape=[1 << 20, 1 << 20])),
    )
    for name, spoiled in others:
        yield f"attribute_{name}", name, model([spoiled], inputs=image, initializers=filters)
    heads = node("Attention", ["x", "x", "x"], ["y"], q_num_heads=0, kv_num_heads=0)
    yield "attribute_heads", "attention without heads", model([heads], opset=23)


def _traps() -> Iterator[Entry]:
    def division(op: str, kind: int, dividend: int, divisor: int, **more: int) -> onnx.ModelProto:
        return model(
            [node(op, ["a", "b"], ["y"], **more)],
            inputs=[],
            initializers=[integers("a", [7, dividend], kind), integers("b", [1, divisor], kind)],
        )

    for op in ("Div", "Mod"):
        yield f"{op}_zero".lower(), "by zero", division(op, INT64, 1, 0)
        yield f"{op}_int64".lower(), "overflow", division(op, INT64, INT64_MIN, -1)
        yield f"{op}_int32".lower(), "overflow", division(op, INT32, INT32_MIN, -1)
    yield "div_uint8", "by zero", division("Div", TensorProto.UINT8, 1, 0)
    yield (
        "div_by_constant_node",
        "by zero",
        model(
            [node("Constant", [], ["b"], value_int=0), node("Div", ["x", "b"], ["y"])],
            inputs=[value("x", [2], INT64)],
        ),
    )
    inner = branch([node("Div", ["x", "b"], ["t"])], "t")
    yield (
        "div_in_branch",
        "by a zero of the graph around",
        model(
            [node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
            inputs=[value("x", [1], INT64), value("c", [], TensorProto.BOOL)],
            initializers=[integers("b", [0])],
        ),
    )
    giants: tuple[tuple[str, list[int], onnx.NodeProto], ...] = (
        ("constant_of_shape", [1 << 20, 1 << 20], node("ConstantOfShape", ["s"], ["y"])),
        ("expand", [1 << 30, 1 << 30], node("Expand", ["x", "s"], ["y"])),
        ("tile", [1 << 30, 1 << 30], node("Tile", ["x", "s"], ["y"])),
        ("negative_shape", [-4, 2], node("ConstantOfShape", ["s"], ["y"])),
    )
    for name, sizes, spoiled in giants:
        yield f"giant_{name}", f"{sizes}", model([spoiled], initializers=[integers("s", sizes)])
    steps = [helper.make_tensor(n, INT64, [], [v]) for n, v in (("a", 0), ("b", 1 << 50), ("c", 1))]
    count = node("Range", ["a", "b", "c"], ["y"])
    yield "giant_range", "2^50 numbers", model([count], inputs=[], initializers=steps)
    still = [*steps[:2], helper.make_tensor("c", INT64, [], [0])]
    yield "range_step", "a step of 0", model([count], inputs=[], initializers=still)


def _inference() -> Iterator[Entry]:
    """What onnx's shape inference does not survive, or not in time or memory."""
    for number, equation in enumerate(("." * 30, "ab,c->->", "a" * 5000, "i.j,jk", "ij")):
        proto = model([node("Einsum", ["x", "x"], ["y"], equation=equation)])
        yield f"einsum_{number}", f"equation {equation[:20]}", proto
    long = [value("x"), value("s", [1 << 33], INT64)]
    for op in ("Reshape", "Expand", "Tile", "Unsqueeze", "Squeeze"):
        proto = model([node(op, ["x", "s"], ["y"])], inputs=long)
        yield f"long_operand_{op.lower()}", "a shape with 2^33 entries", proto
    proto = model([node("Slice", ["x", "s", "s", "s"], ["y"])], inputs=long)
    yield "long_operand_slice", "2^33 axes", proto
    proto = model([node("Resize", ["x", "", "", "s"], ["y"])], inputs=long)
    yield "long_operand_resize", "2^33 sizes", proto


def numbers() -> Iterator[Entry]:
    yield from _numbers()
    yield from _traps()
    yield from _inference()
