"""Models whose graphs break the rules, nest or expand without end, or trap."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    relu,
    value,
    weight,
    with_weight,
)

Entry = tuple[str, str, onnx.ModelProto | bytes]
INT64_MIN, INT32_MIN = -(1 << 63), -(1 << 31)


def _changed(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    proto = relu()
    change(proto)
    return proto


def _headers() -> Iterator[Entry]:
    yield "no_graph", "no graph", _changed(lambda m: m.ClearField("graph"))
    yield "no_ir_version", "no IR version", _changed(lambda m: m.ClearField("ir_version"))
    for version in (-1, 2, 999):
        change = _changed(lambda m, v=version: setattr(m, "ir_version", v))
        yield f"ir_version_{version}", "an IR version that nobody wrote", change
    yield "no_opset", "no operator set", _changed(lambda m: m.ClearField("opset_import"))
    for version in (-5, 0, 6, 999):
        change = _changed(lambda m, v=version: setattr(m.opset_import[0], "version", v))
        yield f"opset_{version}", "an operator set out of range", change
    two = _changed(lambda m: m.opset_import.add(domain="ai.onnx", version=17))
    yield "opset_twice", "two versions of one operator set", two
    yield (
        "domain_missing",
        "a domain that is not imported",
        model([helper.make_node("Foo", ["x"], ["y"], domain="some.where")]),
    )
    whole = relu().SerializeToString()
    yield "bad_utf8", "a name that is no UTF-8", whole.replace(b"Relu_node", b"Relu_n\xff\xfe\xfd")
    yield "bad_utf8_value", "a value's name is no UTF-8", whole.replace(b"\x01x", b"\x01\xff")


def _names() -> Iterator[Entry]:
    relus = [node("Relu", ["x"], ["y"], name="a"), node("Relu", ["x"], ["y"], name="b")]
    yield "output_twice", "two nodes define one value", model(relus)
    yield "output_is_input", "a node defines an input", model([node("Relu", ["x"], ["x"])])
    yield (
        "output_is_weight",
        "a node defines an initializer",
        model([node("Relu", ["x"], ["w"]), node("Relu", ["w"], ["y"])], initializers=[weight()]),
    )
    yield (
        "same_output_in_node",
        "a node defines a value twice",
        model([node("Split", ["x"], ["y", "y"], num_outputs=2)]),
    )
    yield (
        "input_twice",
        "two inputs of one name",
        model([node("Relu", ["x"], ["y"])], inputs=[value("x"), value("x")]),
    )
    yield (
        "graph_output_twice",
        "two outputs of one name",
        model([node("Relu", ["x"], ["y"])], outputs=[value("y", None), value("y", None)]),
    )
    yield (
        "weight_twice",
        "two initializers of one name",
        model([node("Add", ["x", "w"], ["y"])], initializers=[weight(), weight()]),
    )
    yield (
        "input_no_name",
        "an input without name",
        model([node("Relu", ["x"], ["y"])], inputs=[value("x"), value("")]),
    )
    yield (
        "value_nul",
        "NUL in a value's name",
        model([node("Relu", ["x"], ["a\0b"]), node("Relu", ["a\0b"], ["y"])]),
    )
    yield "undefined", "a value that nothing defines", model([node("Relu", ["z"], ["y"])])
    yield "undefined_output", "an output that nothing defines", model([node("Relu", ["x"], ["z"])])
    yield (
        "escape_sequence",
        "a name that writes to the terminal",
        model([node("Relu", ["\x1b[2J\n\nok: converted"], ["y"])]),
    )
    yield (
        "long_name",
        "a name of a million characters",
        model([node("Relu", ["z" * 1_000_000], ["y"])]),
    )


def _cycles() -> Iterator[Entry]:
    yield "self_loop", "a node reads its own output", model([node("Add", ["x", "y"], ["y"])])
    yield (
        "cycle",
        "two nodes read each other",
        model(
            [
                node("Add", ["x", "b"], ["a"], name="first"),
                node("Relu", ["a"], ["b"], name="second"),
                node("Relu", ["b"], ["y"], name="third"),
            ]
        ),
    )
    ring = [node("Relu", [f"v{(i + 1) % 5000}"], [f"v{i}"], name=f"n{i}") for i in range(5000)]
    yield (
        "long_cycle",
        "a ring of 5000 nodes",
        model([*ring, node("Relu", ["v0"], ["y"], name="last")]),
    )
    inner = branch([node("Relu", ["y"], ["t"])], "t")
    choice = node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    yield (
        "cycle_by_subgraph",
        "a branch reads its own node's output",
        model([choice], inputs=[value("c", [], TensorProto.BOOL)]),
    )
    missing = branch([node("Relu", ["nowhere"], ["t"])], "t")
    yield (
        "undefined_in_subgraph",
        "a branch reads what nothing defines",
        model(
            [node("If", ["c"], ["y"], then_branch=missing, else_branch=missing)],
            inputs=[value("c", [], TensorProto.BOOL)],
        ),
    )
    outer = branch([], "x")
    yield (
        "outer_as_output",
        "a branch returns a value of the graph around it",
        model(
            [node("If", ["c"], ["y"], then_branch=outer, else_branch=outer)],
            inputs=[value("x"), value("c", [], TensorProto.BOOL)],
        ),
    )


def _nodes() -> Iterator[Entry]:
    bad: tuple[tuple[str, str, onnx.NodeProto], ...] = (
        ("unknown_operator", "no such operator", node("Frobnicate", ["x"], ["y"])),
        ("no_operator", "no operator", node("", ["x"], ["y"])),
        ("no_inputs", "too few inputs", node("Add", [], ["y"])),
        ("one_input", "too few inputs", node("Add", ["x"], ["y"])),
        ("many_inputs", "too many inputs", node("Relu", ["x"] * 9, ["y"])),
        ("many_outputs", "too many outputs", node("Relu", ["x"], ["y", "z"])),
        ("no_outputs", "too few outputs", node("Relu", ["x"], [])),
        ("left_out", "a needed input is left out", node("Add", ["x", ""], ["y"])),
        ("missing_attribute", "a needed attribute is missing", node("Cast", ["x"], ["y"])),
        ("unknown_attribute", "an unknown attribute", node("Relu", ["x"], ["y"], beta=1.0)),
        ("attribute_type", "an attribute of the wrong type", node("Cast", ["x"], ["y"], to=1.5)),
        ("deprecated", "an operator that is gone", node("Upsample", ["x", "x"], ["y"])),
        ("opset_1_only", "an operator that is gone", node("Scatter", ["x", "x", "x"], ["y"])),
    )
    for name, why, spoiled in bad:
        yield f"node_{name}", why, model([spoiled])
    twice = node("Cast", ["x"], ["y"], to=1)
    twice.attribute.add().CopyFrom(twice.attribute[0])
    yield "node_attribute_twice", "an attribute twice", model([twice])
    untyped = node("Cast", ["x"], ["y"], to=1)
    untyped.attribute[0].type = 0
    yield "node_attribute_untyped", "an attribute without type", model([untyped])
    double = node("Cast", ["x"], ["y"], to=1)
    double.attribute[0].s = b"both"
    yield "node_attribute_both", "an attribute with two values", model([double])
    reference = node("Cast", ["x"], ["y"], to=1)
    reference.attribute[0].ClearField("i")
    reference.attribute[0].ref_attr_name = "kind"
    yield "node_attribute_reference", "a reference outside of a function", model([reference])


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


def _nested(levels: int) -> onnx.ModelProto:
    inner = branch([node("Relu", ["x"], ["t0"])], "t0")
    for level in range(1, levels):
        choice = node(
            "If",
            ["c"],
            [f"t{level}"],
            then_branch=inner,
            else_branch=branch([node("Relu", ["x"], ["e"])], "e"),
        )
        inner = branch([choice], f"t{level}")
    return model(
        [node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
        inputs=[value("x"), value("c", [], TensorProto.BOOL)],
    )


def _function(name: str, calls: list[str], inputs: int = 1) -> onnx.FunctionProto:
    nodes: list[onnx.NodeProto] = []
    last = "i0"
    for index, callee in enumerate(calls):
        target = f"v{index}"
        domain = "" if callee == "Relu" else "own"
        nodes.append(helper.make_node(callee, [last], [target], domain=domain))
        last = target
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_function(
        "own", name, [f"i{n}" for n in range(inputs)], [last], nodes, opsets
    )


def _calling(functions: list[onnx.FunctionProto]) -> onnx.ModelProto:
    call = helper.make_node(functions[0].name, ["x"], ["y"], domain="own", name="call")
    return model([call], functions=functions, domains=["own"])


def _functions() -> Iterator[Entry]:
    yield "nested_25", "subgraphs nested deeper than the limit", _nested(26)
    doubling = [_function(f"f{n}", [f"f{n + 1}"] * 2) for n in range(40)]
    yield "functions_exponential", "2^40 nodes", _calling([*doubling, _function("f40", ["Relu"])])
    tenfold = [_function(f"f{n}", [f"f{n + 1}"] * 10) for n in range(6)]
    yield "functions_million", "10^6 nodes", _calling([*tenfold, _function("f6", ["Relu"])])
    yield "function_recursive", "a function calls itself", _calling([_function("f0", ["f0"])])
    mutual = [_function("f0", ["f1"]), _function("f1", ["f0"])]
    yield "functions_mutual", "two functions call each other", _calling(mutual)
    chain = [_function(f"f{n}", [f"f{n + 1}"]) for n in range(2000)]
    yield "functions_deep", "2000 calls deep", _calling([*chain, _function("f2000", ["Relu"])])
    twice = [_function("f0", ["Relu"]), _function("f0", ["Relu"])]
    yield "function_twice", "two functions of one name", _calling(twice)
    yield "function_undefined", "a value that nothing defines", _calling([_broken_function()])
    many = _calling([_function("f0", ["Relu"])])
    many.graph.node[0].input.extend(["x", "x"])
    yield "function_inputs", "more inputs than the function has", many
    unnamed = _calling([_function("f0", ["Relu"])])
    unnamed.functions[0].name = ""
    yield "function_no_name", "a function without name", unnamed
    circular = _calling([_function("f0", ["Relu", "Relu"])])
    circular.functions[0].node[0].input[0] = "v1"
    yield "function_cycle", "a cycle in a function", circular


def _broken_function() -> onnx.FunctionProto:
    function = _function("f0", ["Relu"])
    function.node[0].input[0] = "nowhere"
    return function


def graphs() -> Iterator[Entry]:
    yield from _headers()
    yield from _names()
    yield from _cycles()
    yield from _nodes()
    yield from _numbers()
    yield from _traps()
    yield from _functions()


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
        "output_contradicted",
        "declared [9, 9], computed [2, 3]",
        model([node("Relu", ["x"], ["y"])], outputs=[value("y", [9, 9])]),
    )
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
    zero = [node("Sub", ["a", "a"], ["b"]), node("Div", ["a", "b"], ["y"])]
    yield (
        "division_by_computed_zero",
        "x / (x - x)",
        model(zero, inputs=[], initializers=[integers("a", [7])]),
    )
    least = [node("Neg", ["a"], ["b"]), node("Div", ["c", "b"], ["y"])]
    yield (
        "division_overflows_computed",
        "INT_MIN / -(1)",
        model(least, inputs=[], initializers=[integers("a", [1]), integers("c", [INT64_MIN])]),
    )
