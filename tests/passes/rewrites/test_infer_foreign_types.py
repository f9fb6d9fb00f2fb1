"""Types behind onnxruntime's own operators are known before placement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import samba_onnx
from samba_onnx.errors import ExecutionError
from samba_onnx.passes.rewrites import infer_foreign_types
from samba_onnx.passes.rewrites.infer_foreign_types import InferForeignTypesPass
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.program.value_types import type_text
from samba_onnx.safety.type_inference import OutputType

HEADER = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1, "com.example": 1]>\n'
X = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)


def parse(text: str) -> ir.Model:
    """Return a model in text form."""
    return ir.from_proto(onnx.parser.parse_model(HEADER + text))


def inferred(text: str) -> tuple[dict[str | None, Any], bool, list[str]]:
    """Return type and shape of each result after the pass, whether it did anything, and notes."""
    model = parse(text)
    rewrite = InferForeignTypesPass()
    modified = rewrite(model).modified
    found = {
        value.name: (type_text(value), dimensions(value.shape))
        for node in model.graph
        for value in node.outputs
    }
    return found, modified, rewrite.notes


def test_types_and_dimensions_follow() -> None:
    found, modified, notes = inferred("""
        g (float[batch,3,4] x) => (y) <int64[2] shape={-1,4}, int64[1] ax={1}, float[4] b={1,2,3,4}>
        {
            g0 = com.microsoft.BiasGelu(x, b)
            c = Cast<to=10>(g0)
            t = Transpose<perm=[0,2,1]>(c)
            r = Reshape(g0, shape)
            s = ReduceSum<keepdims=0>(g0, ax)
            y = com.microsoft.FusedMatMul<transB=1>(r, s)
        }""")
    assert (modified, notes) == (True, [])
    assert found == {
        "g0": ("tensor(float)", ("batch", 3, 4)),
        "c": ("tensor(float16)", ("batch", 3, 4)),
        "t": ("tensor(float16)", ("batch", 4, 3)),
        "r": ("tensor(float)", (None, 4)),  # onnxruntime's name for it means nothing here
        "s": ("tensor(float)", ("batch", 4)),
        "y": ("tensor(float)", (None, "batch")),
    }


def test_a_second_run_finds_nothing_new() -> None:
    model = parse("g (float[2] x) => (y) { a = com.microsoft.Gelu(x) y = Relu(a) }")
    assert InferForeignTypesPass()(model).modified
    assert not InferForeignTypesPass()(model).modified


def test_what_is_known_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _, _ = inferred("""g (float[n,4] x) => (y) <float[k,4] a>
        { a = com.microsoft.Gelu(x) y = com.microsoft.Gelu(a) }""")
    assert found["a"] == ("tensor(float)", ("k", 4))
    assert found["y"] == ("tensor(float)", (None, 4))  # k is no dimension of an input


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2] x) => (y) { y = Relu(x) }",  # onnx's own business
        "g (float[2] x) => (float[2] y) { y = com.microsoft.Gelu(x) }",  # known
        "g (float[2] x) => (y) { a = com.example.Thing(x) y = com.microsoft.Gelu(a) }",
    ],
)
def test_nobody_is_asked_without_need(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infer_foreign_types, "infer_output_types", lambda proto: 1 / 0)
    assert not inferred(text)[1]


def test_dimensions_without_a_name_are_asked_for() -> None:
    found, modified, _ = inferred("""g (float[n,4] x) => (float[?,?] y) <float[?,?] a, float[k,?] b>
        { a = com.microsoft.Gelu(x) b = com.microsoft.Gelu(a) y = com.microsoft.Gelu(b) }""")
    assert modified
    assert found["a"] == ("tensor(float)", ("n", 4))
    assert found["b"] == ("tensor(float)", ("k", 4))
    assert found["y"] == ("tensor(float)", (None, 4))  # an output gets no name that it did not have


def test_names_that_onnx_made_up_are_asked_for() -> None:
    """Inference before this pass, and quantizers, write them where the first operator's result is unknown."""
    found, modified, _ = inferred("""
        g (float[unk__7,3,4] x) => (y) <float[unk__0,unk__1,unk__2] r, int64[3] shape={0,0,-1}>
        {
            a = com.microsoft.Gelu(x)
            t = Transpose<perm=[1,0,2]>(a)
            r = Reshape(t, shape)
            y = com.microsoft.Gelu(r)
        }""")
    assert modified
    # The model calls a dimension of its input so, too: that is a name.
    assert found["t"] == found["y"] == ("tensor(float)", (3, "unk__7", 4))
    assert found["r"] == ("tensor(float)", (3, "unk__7", 4))


_WIDENED = """
    i{k} = com.microsoft.Inverse(x{k})
    s{k} = Shape(i{k})
    t{k} = Transpose<perm=[1,0,2]>(i{k})
    order{k} = Gather(s{k}, swapped)
    first{k} = Slice(order{k}, zero, one)
    second{k} = Slice(order{k}, one, two)
    third{k} = Slice(order{k}, two, three)
    side{k} = Mul(second{k}, third{k})
    flat{k} = Concat<axis=0>(first{k}, side{k})
    wide{k} = Reshape(t{k}, flat{k})
    r{k} = Relu(wide{k})
    back{k} = Concat<axis=0>(first{k}, second{k}, third{k})
    u{k} = Reshape(r{k}, back{k})
    x{after} = Transpose<perm=[1,0,2]>(u{k})
"""
"""How exporters lay the directions of a recurrent layer side by side."""


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_shapes_that_are_computed_between_operators_become_known(layers: int) -> None:
    """What stands behind an operator that stays whole runs on the RDU, however many there are."""
    lines = "".join(_WIDENED.format(k=k, after=k + 1) for k in range(layers))
    numbers = "int64[1] zero={0}, int64[1] one={1}, int64[1] two={2}, int64[1] three={3}"
    proto = onnx.parser.parse_model(
        f"{HEADER} g (float[2,3,3] x0) => (y) <{numbers}, int64[3] swapped={{1,0,2}}>"
        f"{{ {lines} y = Relu(x{layers}) }}"
    )
    manifest = samba_onnx.analyze(proto, placement="strict")
    on_cpu = [node.op_type for stage in manifest.fallbacks for node in stage.reasons]
    assert on_cpu == ["Inverse"] * layers


def test_operators_that_nobody_knows_are_named() -> None:
    found, modified, notes = inferred("""g (float[2] x) => (y) {
        a = com.example.Thing(x)
        b = com.microsoft.Gelu(x)
        y = Add(a, b)
    }""")
    assert modified
    assert found["b"] == ("tensor(float)", (2,))
    assert found["a"] == found["y"] == ("", None)
    assert notes == [
        "the emulator cannot run com.example::Thing without a library of custom operators "
        "(--custom-ops): onnxruntime has no such operator, and the model brings no function body for "
        "it"
    ]


def test_a_refusal_is_a_note() -> None:
    found, modified, notes = inferred("g (float[2] x) => (y) { y = com.microsoft.NoSuch(x) }")
    assert (modified, found["y"]) == (False, ("", None))
    (note,) = notes
    assert note.startswith("no types are known behind com.microsoft::NoSuch: ")


MODELS = {
    "Gelu": "y = Relu(a) a = com.microsoft.Gelu(x)",
    "FusedMatMul": "a = com.microsoft.FusedMatMul<transB=1, alpha=0.5>(x, x) y = Relu(a)",
    "QuickGelu": "r = Relu(x) a = com.microsoft.QuickGelu<alpha=1.0>(r) y = MatMul(a, r)",
    "BiasGelu": "a = com.microsoft.BiasGelu(x, b) y = MatMul(a, x)",
    "SkipLayerNormalization": (
        "a = com.microsoft.SkipLayerNormalization<epsilon=0.1>(t, t, b) t = Unsqueeze(x, zero) "
        "y = Squeeze(a, zero)"
    ),
    # a value that onnx cannot infer passes by a section, from one fallback to the next
    "passing by": (
        "h = Hardmax(x) a = com.microsoft.Gelu(h) r = Relu(h) c = com.microsoft.FusedMatMul(a, r) "
        "y = Hardmax(c)"
    ),
    "untyped": "y = com.microsoft.Gelu(x)",
}


@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_of_onnxruntime(name: str, tmp_path: Path) -> None:
    output = "y" if name == "untyped" else "float[3,3] y"
    text = f"g (float[3,3] x) => ({output}) <float[3] b={{1,2,3}}, int64[1] zero={{0}}> {{"
    lines = MODELS[name].replace(") ", ")\n").split("\n")
    proto = onnx.parser.parse_model(HEADER + text + " ".join(lines) + "}")
    _sort(proto)
    (expected,) = ort.InferenceSession(proto.SerializeToString()).run(["y"], {"x": X})
    pef = samba_onnx.convert(proto, tmp_path / "m.pef")
    with pef, samba_onnx.Device(pef, threads=1) as device:
        # float32, three terms: what another order of additions can change
        np.testing.assert_allclose(device.run({"x": X})["y"], expected, rtol=1e-6, atol=1e-6)
        graph = pef.manifest.graphs[0]
        assert tuple(device.ledger.transfers) == graph.load_transfers + graph.run_transfers
    assert pef.manifest.reference is not None
    on_cpu = {n.code for f in pef.manifest.fallbacks for n in f.reasons}
    assert on_cpu <= {"domain", "operator"}
    assert "unknown_type" not in on_cpu


def _sort(proto: onnx.ModelProto) -> None:
    model = ir.from_proto(proto)
    model.graph.sort()
    proto.CopyFrom(ir.to_proto(model))


def test_a_model_that_onnxruntime_cannot_run_converts_and_says_so(tmp_path: Path) -> None:
    text = "g (float[3,3] x) => (float[3,3] y) { r = Relu(x) y = com.example.Thing(r) }"
    pef = samba_onnx.convert(onnx.parser.parse_model(HEADER + text), tmp_path / "m.pef")
    assert any("cannot run com.example::Thing" in note for note in pef.manifest.notes)
    assert [section.operators for section in pef.manifest.sections] == [{"Relu": 1}]
    with pef, pytest.raises(ExecutionError, match=r"com\.example:Thing"):
        samba_onnx.Device(pef, threads=1)


@pytest.mark.parametrize("operator", ["Relu", "com.microsoft.Gelu"])
def test_an_output_without_type_gets_one(operator: str, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(f"{HEADER} g (float[3,3] x) => (y) {{ y = {operator}(x) }}")
    manifest = samba_onnx.analyze(proto)
    (symbol,) = (symbol for symbol in manifest.symbols if symbol.name == "y")
    assert (symbol.type, symbol.shape) == ("tensor(float)", (3, 3))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("tensor(float)", ir.TensorType(ir.DataType.FLOAT)),
        ("tensor(int64)", ir.TensorType(ir.DataType.INT64)),
        ("seq(tensor(float))", ir.SequenceType(ir.TensorType(ir.DataType.FLOAT))),
        ("optional(tensor(bool))", ir.OptionalType(ir.TensorType(ir.DataType.BOOL))),
        (
            "optional(seq(tensor(float)))",
            ir.OptionalType(ir.SequenceType(ir.TensorType(ir.DataType.FLOAT))),
        ),
        ("tensor(odd)", None),
        ("map(int64,tensor(float))", None),
        ("sparse_tensor(float)", None),
        ("opaque", None),
    ],
)
def test_what_onnxruntime_calls_a_type_is_taken_over_when_there_is_a_word_for_it(
    text: str, kind: ir.TypeProtocol | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(proto: onnx.ModelProto) -> dict[str, OutputType]:
        return {value.name: OutputType(text, (2, "made up")) for value in proto.graph.output}

    monkeypatch.setattr(infer_foreign_types, "infer_output_types", answer)
    model = parse("g (float[n] x) => (y) { y = com.microsoft.Gelu(x) }")
    assert InferForeignTypesPass()(model).modified == (kind is not None)
    (value,) = model.graph.outputs
    assert value.type == kind
    assert dimensions(value.shape) == (None if kind is None else (2, None))


def test_a_type_that_contradicts_what_is_known_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        infer_foreign_types, "infer_output_types",
        lambda proto: {value.name: OutputType("tensor(double)", (2,)) for value in proto.graph.output},
    )  # fmt: skip
    model = parse("g (float[n] x) => (y) { y = com.microsoft.Gelu(x) }")
    model.graph.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    assert not InferForeignTypesPass()(model).modified
    assert model.graph.outputs[0].shape is None


def asked(text: str, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    """Return the model that onnxruntime would see."""
    seen: list[onnx.ModelProto] = []
    monkeypatch.setattr(infer_foreign_types, "infer_output_types", lambda proto: seen.append(proto) or {})  # fmt: skip
    assert not InferForeignTypesPass()(parse(text)).modified
    (proto,) = seen
    return proto


def test_short_integers_are_shown_and_weights_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = asked(
        f"""g (float[n,4] x) => (y) <float[4] b = {{1, 2, 3, 4}}, int64[2] shape = {{-1, 4}},
        int64[1024] most = {{{", ".join("1" * 1024)}}}, int64[1025] more = {{{", ".join("1" * 1025)}}}> {{
            a = com.microsoft.BiasGelu(x, b)
            r = Reshape(a, shape)
            s = com.microsoft.Thing(r, most, more)
            y = Exp(s)
        }}""",
        monkeypatch,
    )
    assert [tensor.dims[0] for tensor in proto.graph.initializer] == [2, 1024]
    shapes = {
        tuple(dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim)
        for value in proto.graph.input
    }
    assert shapes == {("n", 4), (4,), (1025,)}
    assert [node.op_type for node in proto.graph.node] == ["BiasGelu", "Reshape", "Thing", "Exp"]
    assert len(proto.graph.output) == 4


def test_what_is_left_out_stays_so_and_what_is_known_is_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proto = asked(
        """g (float[2] x, float[2] k) => (z) <float[2] h> {
            a, b = com.microsoft.Pair<alpha = 1.5>(x, , k)
            h, c = com.microsoft.Other(a)
            z = Relu(h)
        }""",
        monkeypatch,
    )  # fmt: skip
    first, second, _ = proto.graph.node
    assert first.input[1] == ""
    assert first.attribute[0].f == 1.5
    (stated,) = proto.graph.value_info
    assert stated.name == second.output[0]
    assert stated.name not in {value.name for value in proto.graph.output}
    assert {item.domain: item.version for item in proto.opset_import} == {"": 21, "com.microsoft": 1, "com.example": 1}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        # a node of another version, or with a graph within, is not asked about
        "g (float[2] x) => (y) { y = com.microsoft.Gelu(x) }",
        """g (bool c, float[2] x) => (y) { y = If (c)
        <then_branch = t () => (float[2] a) { a = com.microsoft.Gelu(x) },
         else_branch = e () => (float[2] b) { b = Neg(x) }> }""",
    ],
)
def test_stamped_nodes_and_subgraphs_wait(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infer_foreign_types, "infer_output_types", lambda proto: 1 / 0)
    model = parse(text)
    model.graph[0].version = 20
    assert not InferForeignTypesPass()(model).modified
    if "If" in text:
        model.graph[0].version = None
        assert not InferForeignTypesPass()(model).modified


def answered(
    text: str, monkeypatch: pytest.MonkeyPatch, *answers: OutputType
) -> tuple[list[onnx.ModelProto], ir.Model, bool]:
    """Infer with answers in the order of what is asked; return the questions, the model, whether it changed."""
    questions = []

    def answer(proto: onnx.ModelProto) -> dict[str, OutputType]:
        questions.append(proto)
        return dict(zip((output.name for output in proto.graph.output), answers, strict=False))

    monkeypatch.setattr(infer_foreign_types, "infer_output_types", answer)
    model = parse(text)
    return questions, model, InferForeignTypesPass()(model).modified


def test_an_early_operator_of_the_default_domain_is_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    questions, _, modified = answered(
        "g (float[2] x, float[2] s) => (y) { a = SimplifiedLayerNormalization(x, s) y = Relu(a) }",
        monkeypatch,
    )
    assert (len(questions), modified) == (1, False)


def test_only_what_is_open_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """g (float[2] x) => (y) <float b> {
        s = SequenceConstruct(x, x)
        b = ReduceSum<keepdims=0>(x)
        a = com.microsoft.Gelu(x)
        c = com.microsoft.Gelu(x)
        y = Add(a, c) }"""
    model = parse(text)
    for node, kind in ((model.graph[0], ir.SequenceType(ir.TensorType(ir.DataType.FLOAT))),
                       (model.graph[3], ir.TensorType(ir.DataType.FLOAT))):  # fmt: skip
        node.outputs[0].type = kind
    monkeypatch.setattr(onnx.parser, "parse_model", lambda text: ir.to_proto(model))
    questions, _, _ = answered("", monkeypatch)
    # a has no type, c no shape, y neither; s and b have all that they can have
    assert [node.op_type for node in questions[0].graph.node] == ["Gelu", "Gelu", "Add"]
    assert len(questions[0].graph.output) == 3


def test_a_type_without_a_shape_is_new_and_so_is_one_before_what_was_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, model, modified = answered(
        "g (float[2] x) => (y) { y = com.microsoft.Gelu(x) }",
        monkeypatch,
        OutputType("tensor(float)", None),
    )
    assert modified
    assert (type_text(model.graph[0].outputs[0]), model.graph[0].outputs[0].shape) == (
        "tensor(float)",
        None,
    )
    _, _, modified = answered(
        "g (float[2] x) => (y) <float[n] b> { a = com.microsoft.Gelu(x) b = com.microsoft.Gelu(a) y = Relu(b) }",
        monkeypatch,
        OutputType("tensor(float)", (2,)),
        OutputType("map(int64)", (2,)),
    )
    assert modified


def test_operators_without_a_rule_are_named_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(proto: onnx.ModelProto) -> dict[str, OutputType]:
        raise ExecutionError("no")

    monkeypatch.setattr(infer_foreign_types, "infer_output_types", refuse)
    model = parse(
        "g (float[2,2] x) => (y) { a = com.microsoft.Inverse(x) y = com.microsoft.ComplexMul(a, a) }"
    )
    rewrite = InferForeignTypesPass()
    rewrite(model)
    assert rewrite.notes == [
        "no types are known behind com.microsoft::ComplexMul, com.microsoft::Inverse: no"
    ]
