"""Models whose header, names, order or nodes break the rules of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx
from onnx import TensorProto, helper

from tests.safety.small_models import (
    branch,
    model,
    node,
    relu,
    value,
    weight,
)

Entry = tuple[str, str, onnx.ModelProto | bytes]


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
    for version in (-5, 0, 999):
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


def graphs() -> Iterator[Entry]:
    yield from _headers()
    yield from _names()
    yield from _cycles()
    yield from _nodes()
