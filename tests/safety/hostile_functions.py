"""Models that nest or expand without end."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto, helper

from tests.safety.small_models import (
    branch,
    model,
    node,
    value,
)

Entry = tuple[str, str, onnx.ModelProto]
INT64_MIN, INT32_MIN = -(1 << 63), -(1 << 31)


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


def functions() -> Iterator[Entry]:
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
