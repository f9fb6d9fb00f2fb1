from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from samba_onnx.errors import InternalError, UsageError
from samba_onnx.passes import pipeline
from samba_onnx.passes.order import RUNNING, PassContext, PassEntry, PipelineOptions
from samba_onnx.passes.pipeline import run_pipeline
from samba_onnx.passes.rewrites.rewriting import mark_weights
from tests.backend_cases import (
    BackendCase,
    assert_outputs,
    disk_cases,
    node_cases,
    node_modules,
    run_onnxruntime,
)
from tests.passes.rewrites.applying import (
    TRACE,
    KnowsAll,
    add_weights,
    numbers,
    operators,
    parse,
    run,
)

SAMPLE = (
    "batch_normalization", "castlike", "clip", "constantofshape", "dropout", "expand", "gather",
    "gru", "hardmax", "identity", "if_", "layernormalization", "loop", "lstm", "nonmaxsuppression",
    "optionalgetelement", "pad", "rangeop", "reducemean", "reshape", "resize",
    "roialign", "scan", "sequenceinsert", "shape", "slice", "softmax", "split", "squeeze", "topk",
    "unsqueeze", "upsample", "where",
)  # fmt: skip
"""Modules of node cases: control flow, sequences, optionals, and whatever passes rewrite."""


def passes_on_onnxruntime(case: BackendCase) -> bool:
    try:
        for inputs, outputs in case.data_sets():
            got = run_onnxruntime(case.model.SerializeToString(), inputs)
            assert_outputs(case, outputs, got)
    except Exception:  # whatever goes wrong here is not ours
        return False
    return True


@pytest.mark.filterwarnings("ignore")
def test_backend_cases_pass_after_the_pipeline() -> None:
    ran = 0
    modules = sorted({*SAMPLE} & {*node_modules()})  # older versions of onnx call some otherwise
    for case in (*node_cases(modules), *disk_cases(("simple", "pytorch-operator"))):
        if not case.eligible or not passes_on_onnxruntime(case):
            continue
        result = run_pipeline(ir.from_proto(case.model), KnowsAll())
        data = ir.to_proto(result.model).SerializeToString()
        for inputs, outputs in case.data_sets():
            assert_outputs(case, outputs, run_onnxruntime(data, inputs))
        ran += 1
    assert ran > 200


MIXED = """g (float[batch,3,8,8] x, bool c) => (float[batch,4] y, float[batch,2,2] z)
<float eps = {1e-5}> {
 k = Constant<value = float[1] {2.0}>()
 h = Conv<kernel_shape=[3,3]>(x, w)
 n = BatchNormalization(h, s, b, m, v)
 r = Relu(n)
 p = GlobalAveragePool(r)
 q = Flatten(p)
 d = Dropout<ratio=0.5>(q)
 f = my.scale(d)
 y = If (c) <then_branch = t () => (float[batch,4] a) { o = Constant<value = float[1] {3.0}>()
 a = Mul(f, o) }, else_branch = e () => (float[batch,4] b2) { u = Softmax(f)
 b2 = Identity(u) }>
 sh = Shape(x)
 i0 = Constant<value = int64[1] {0}>()
 bt = Gather(sh, i0)
 two = Constant<value = int64[2] {2, 2}>()
 t2 = Concat<axis=0>(bt, two)
 z = Reshape(y, t2) }
<domain: "my", opset_import: ["": 11]>
scale (a) => (b) { t = Constant<value = float[1] {2.0}>()
 b = Mul(a, t) }"""


def mixed() -> ir.Model:
    text = MIXED.replace(
        "bool c)", "bool c, float[4,3,3,3] w, float[4] s, float[4] b, float[4] m, float[4] v)", 1
    )
    model = parse(text, opset=11, ir_version=8, imports=', "my": 1')
    weights = {name: numbers(4, seed=i) ** 2 + 0.1 for i, name in enumerate(("s", "b", "m", "v"))}
    return add_weights(model, {"w": numbers(4, 3, 3, 3), **weights})


def test_the_result_keeps_every_promise() -> None:
    inputs: list[Any] = [numbers(2, 3, 8, 8), np.array(False)]
    expected = run(mixed(), inputs)
    result = run_pipeline(mixed(), KnowsAll())
    for old, new in zip(expected, run(result.model, inputs), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)  # a folded BatchNormalization
    nodes = list(result.model.graph.all_nodes())
    assert not {"Constant", "BatchNormalization", "Dropout"} & {node.op_type for node in nodes}
    assert not result.model.functions
    assert result.model.graph.opset_imports[""] == 21
    assert all(node.version is None for node in nodes)
    assert all(TRACE in node.metadata_props for node in nodes)
    names = [value.name for node in nodes for value in node.outputs]
    assert len(names) == len(set(names))
    assert all(not graph.initializers for graph in result.model.graph.subgraphs())
    assert result.weight_names == {"w_normalized", "w_bias_normalized"}
    assert [(d.name, d.inputs, d.option) for d in result.dynamic_dimensions] == [
        ("batch", ("x[0]",), "--dim batch=1")
    ]
    assert all(v.type is not None for node in nodes for v in node.outputs)
    onnx.checker.check_model(ir.to_proto(result.model))


def test_every_pass_keeps_traces_interface_and_results() -> None:
    inputs: list[Any] = [numbers(2, 3, 8, 8), np.array(True)]
    expected = run(mixed(), inputs)
    length = len(RUNNING)
    for end in range(1, length + 1):
        model = mixed()
        runner = pipeline._Runner(model, None)
        mark_weights(model)
        runner.run(RUNNING[:end], PassContext(KnowsAll()))
        assert all(TRACE in node.metadata_props for node in model.graph.all_nodes())
        if any(node.version for node in model.graph.all_nodes()):
            continue  # between inlining and conversion a model has nodes of two versions
        for old, new in zip(expected, run(model, inputs), strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)


def test_static_dimensions_fold_what_depends_on_them() -> None:
    result = run_pipeline(mixed(), KnowsAll(), PipelineOptions({"batch": 2}))
    assert "Shape" not in operators(result.model)
    assert not result.dynamic_dimensions
    assert all(
        v.shape is not None and v.shape.is_static() for n in result.model.graph for v in n.outputs
    )
    with pytest.raises(UsageError, match="it has batch"):
        run_pipeline(mixed(), KnowsAll(), PipelineOptions({"seq": 2}))


def test_progress_and_summaries_name_every_pass_that_ran() -> None:
    seen: list[str] = []
    result = run_pipeline(mixed(), KnowsAll(), progress=seen.append)
    assert seen == [summary.name for summary in result.passes]
    by_name = {summary.name: summary for summary in result.passes if summary.modified}
    assert (
        by_name["FoldBatchNormalization"].nodes_after
        == by_name["FoldBatchNormalization"].nodes_before - 1
    )
    assert {"InlineFunctions", "LiftConstants", "ConvertOpset"} <= set(by_name)
    again = run_pipeline(result.model, KnowsAll())
    # Of a dynamic model the shapes are inferred again, and come out as they were.
    assert {summary.name for summary in again.passes if summary.modified} <= {
        "ForgetShapes",
        "InferShapes",
    }


class Breaks(ir.passes.InPlacePass):
    """A pass with a fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        if self.fault == "raise":
            raise ValueError("of all things")
        model.graph.outputs[0].name = "other"
        return ir.passes.PassResult(model, modified=True)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", "pass Breaks failed: of all things; passes before it: ForgetShapes;"),
        ("rename", "pass Breaks changed the interface: outputs had y: .*, now other: "),
    ],
)
def test_a_fault_names_the_pass(fault: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (RUNNING[0], PassEntry(lambda context: Breaks(fault)))
    monkeypatch.setattr(pipeline, "RUNNING", steps)
    with pytest.raises(InternalError, match=message):
        run_pipeline(mixed(), KnowsAll())


def test_initializers_of_old_files_are_constants_and_leave_the_inputs() -> None:
    model = parse(
        "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }",
        opset=7,
        ir_version=3,
    )
    result = run_pipeline(model, KnowsAll())
    assert [value.name for value in result.model.graph.inputs] == ["x"]
    assert result.weight_names == {"w"}


def test_nameless_dimensions_are_reported_with_the_shape_that_sets_them() -> None:
    model = parse("g (float[?,3] x) => (float[?,3] y) { y = Relu(x) }")
    (dimension,) = run_pipeline(model, KnowsAll()).dynamic_dimensions
    assert (dimension.name, dimension.inputs, dimension.option) == (
        "",
        ("x[0]",),
        "--input-shape x=1,3",
    )


def test_a_model_of_3_gigabytes_is_not_read() -> None:
    class Unreadable(ir.ExternalTensor):
        def numpy(self) -> Any:
            raise AssertionError(f"weight {self.name} was read")

        tobytes = numpy

    layers = 12
    body = "\n ".join(
        f"t{i} = Transpose(w{i})\n x{i + 1} = MatMul(x{i}, t{i})" for i in range(layers)
    )
    heads = ", ".join(f"float[8192,8192] w{i}" for i in range(layers))
    model = parse(f"g (float[n,8192] x0, {heads}) => (float[n,8192] x{layers}) {{ {body} }}")
    for value in list(model.graph.inputs)[1:]:
        model.graph.inputs.remove(value)
        value.const_value = Unreadable(
            "missing.bin", 0, 1 << 28, ir.DataType.FLOAT, shape=ir.Shape((8192, 8192)), name=value.name or ""
        )  # fmt: skip
        model.graph.register_initializer(value)
    result = run_pipeline(model, KnowsAll())
    assert operators(result.model) == ["MatMul"] * layers
    assert len(result.weight_names) == layers


def test_batch_normalization_is_folded_when_its_operands_have_become_constants() -> None:
    """As torch's exporter leaves it without its optimizer: statistics are computed and reshaped."""
    model = add_weights(
        parse("""g (float[1,2,6,6] x, float[4,2,3,3] w, float[1,4] s, float[4] v) => (float[1,4,4,4] y)
<int64[1] all = {-1}, float[4] zero = {0.0, 0.0, 0.0, 0.0}, float[1] tiny = {0.25}> {
 h = Conv(x, w)
 r = Reshape(s, all)
 t = Add(v, tiny)
 u = Sqrt(t)
 y = BatchNormalization(h, r, zero, zero, u) }"""),
        {"w": numbers(4, 2, 3, 3), "s": numbers(1, 4), "v": numbers(4) ** 2},
    )
    x = numbers(1, 2, 6, 6)
    expected = run(model, [x])[0]
    result = run_pipeline(model, KnowsAll())
    assert operators(result.model) == ["Conv"]
    np.testing.assert_allclose(run(result.model, [x])[0], expected, rtol=1e-5, atol=1e-6)
