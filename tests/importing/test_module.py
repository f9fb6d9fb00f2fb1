"""Which initializers become parameters, how inputs are given, and what runs step by step."""

from __future__ import annotations

import copy

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from samba_onnx.errors import ModelError, UsageError
from samba_onnx.facts.operators import FACTS
from samba_onnx.importing import module_from_onnx
from samba_onnx.importing.operators.computations import find
from tests.backend_cases import run_onnxruntime
from tests.importing.building import parse, ramp


def _weights(module: torch.nn.Module) -> dict[str, str]:
    names: dict[str, str] = dict(module.onnx_names)  # type: ignore[arg-type]
    return {name: names[name] for name, _ in module.named_parameters()}


def test_the_table_is_as_large_as_promised() -> None:
    known = [row.name for row in FACTS.values() if find(row.domain, row.op_type)]
    assert len(known) >= 179


def test_floating_point_initializers_are_parameters_and_the_rest_is_not() -> None:
    model = parse(
        """g (float[1,2,4,4] x) => (float[1,2,8,8] y, int64[3] z) {
            normal = BatchNormalization(x, scale, shift, mean, variance)
            large = Resize(normal, nothing, scales)
            masked = Add(large, mask)
            half = Mul(masked, factor)
            y = Relu(half)
            z = Identity(numbers)
        }""",
        scale=ramp(2),
        shift=ramp(2),
        mean=ramp(2),
        variance=ramp(2) + 1,
        scales=np.array([1, 1, 2, 2], np.float32),
        nothing=np.zeros(0, np.float32),
        mask=np.array([0, -np.inf] * 4, np.float32),
        factor=np.array(0.5, np.float32),
        numbers=np.arange(3),
    )
    module = module_from_onnx(model)
    assert sorted(_weights(module).values()) == ["scale", "shift"]
    assert {module.onnx_names[name] for name, _ in module.named_buffers()} == {
        "mask",
        "mean",
        "variance",
    }
    value = ramp(1, 2, 4, 4)
    wanted = run_onnxruntime(model.SerializeToString(), [value])
    for got, reference in zip(module(torch.from_numpy(value)), wanted, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), reference, rtol=1e-6, atol=1e-7)


def test_weights_can_be_named() -> None:
    model = parse(
        "g (float[2] x) => (float[2] y) { a = Mul(x, w)\n b = Add(a, s)\n y = Div(b, n) }",
        w=ramp(2),
        s=np.array(2.0, np.float32),
        n=ramp(2),
    )
    assert list(_weights(module_from_onnx(model)).values()) == ["w", "n"]
    assert list(_weights(module_from_onnx(model, weights=["s"])).values()) == ["s"]
    assert not _weights(module_from_onnx(model, weights=[]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v", "no initializer 'v'"),
        ("i", "only floating-point initializers"),
        ("unread", "do not depend on unread"),
    ],
)
def test_names_of_weights_must_be_right(name: str, message: str) -> None:
    model = parse(
        "g (float[2] x) => (float[2] y) { y = Gather(x, i) }", i=np.array([1, 0]), unread=ramp(2)
    )
    with pytest.raises(UsageError, match=message):
        module_from_onnx(model, weights=[name])


def test_names_that_are_no_identifiers_become_some() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x/0", "a.b"], ["p"]),
            helper.make_node("Mul", ["p", "a/b"], ["q"]),
            helper.make_node("Mul", ["q", "forward"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x/0", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(ramp(2), name) for name in ("a.b", "a/b", "forward")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    module = module_from_onnx(model)
    assert _weights(module) == {"a__b": "a.b", "a_b": "a/b", "forward_": "forward"}
    value = torch.ones(2)
    for got in (module(value), module(x_0=value), module(**{"x/0": value})):
        np.testing.assert_allclose(got.detach(), ramp(2) ** 3, rtol=1e-6)


def test_inputs_must_be_complete_and_known() -> None:
    module = module_from_onnx(parse("g (float[2] x, float[2] z) => (float[2] y) { y = Add(x, z) }"))
    value = torch.ones(2)
    for arguments, named, message in (
        ((value,), {}, "also needs z"),
        ((value, value, value), {}, "3 inputs were given, the model takes 2: x, z"),
        ((value,), {"x": value}, "'x' was given twice"),
        ((value,), {"w": value}, "no input 'w'; it has x, z"),
    ):
        with pytest.raises(UsageError, match=message):
            module(*arguments, **named)


def test_a_shared_initializer_is_one_parameter_with_the_sum_of_gradients() -> None:
    model = parse(
        "g (float[3,3] x) => (float[3,3] y) { a = MatMul(x, w)\n y = MatMul(a, w) }", w=ramp(3, 3)
    )
    module = module_from_onnx(model)
    value = torch.from_numpy(ramp(3, 3))
    module(value).sum().backward()
    weight = torch.from_numpy(ramp(3, 3)).requires_grad_()
    (value @ weight @ weight).sum().backward()
    (parameter,) = module.parameters()
    torch.testing.assert_close(parameter.grad, weight.grad, rtol=1e-6, atol=1e-6)


def test_equal_initializers_and_transposed_weights_stay_apart() -> None:
    model = parse(
        """g (float[2,3] x) => (float[2,3] y) {
            turned = Transpose<perm = [1, 0]>(v)
            a = MatMul(x, turned)
            y = MatMul(a, w)
        }""",
        v=np.ones((3, 3), np.float32),
        w=np.ones((3, 3), np.float32),
    )
    assert sorted(_weights(module_from_onnx(model)).values()) == ["v", "w"]


def test_a_copy_has_weights_of_its_own() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Mul(x, w) }", w=ramp(2))
    module = module_from_onnx(model)
    twin = copy.deepcopy(module)
    with torch.no_grad():
        next(twin.parameters()).zero_()
    assert module(torch.ones(2)).abs().min() > 0
    assert twin(torch.ones(2)).abs().max() == 0


def test_moving_statistics_move_in_training_mode_only() -> None:
    model = parse(
        """g (float[4,2,3] x) => (float[4,2,3] y, float[2] m, float[2] v) {
            y, m, v = BatchNormalization<training_mode = 1, momentum = 0.75>
                (x, scale, shift, mean, variance)
        }""",
        scale=ramp(2),
        shift=ramp(2),
        mean=ramp(2),
        variance=ramp(2) + 1,
    )
    module = module_from_onnx(model)
    value = ramp(4, 2, 3)
    wanted = run_onnxruntime(model.SerializeToString(), [value])
    before = {name: one.clone() for name, one in module.named_buffers()}
    results = module.eval()(torch.from_numpy(value))
    for name, one in module.named_buffers():
        torch.testing.assert_close(one, before[name], rtol=0, atol=0)
    results = module.train()(torch.from_numpy(value))
    for got, reference in zip(results, wanted, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), reference, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(module.get_buffer("mean"), wanted[1], rtol=1e-6)
    np.testing.assert_allclose(module.get_buffer("variance"), wanted[2], rtol=1e-6)


def test_dropout_drops_where_graph_and_module_train() -> None:
    text = "g (float[1000] x) => (float[1000] y) {{ y = Dropout(x, rate{flag}) }}"
    rate, on = np.array(0.25, np.float32), np.array(True)
    value = torch.ones(1000)
    still = module_from_onnx(parse(text.format(flag=""), rate=rate))
    assert torch.equal(still(value), value)
    module = module_from_onnx(parse(text.format(flag=", on"), rate=rate, on=on))
    assert torch.equal(module.eval()(value), value)
    dropped = module.train()(value)
    assert set(dropped.tolist()) == {0.0, float(np.float32(1 / 0.75))}
    assert 180 < int((dropped == 0).sum()) < 320  # 250 expected, more than 5 deviations each way


LOOP = """g (float[2] x{inputs}) => (float[2] y, float[3,2] all) {{
    y, all = Loop(count, on, x) <body = inner (int64 i, bool go, float[2] state)
        => (bool still, float[2] next, float[2] seen) {{
        still = Identity(go)
        step = Cast<to = 1>(i)
        shifted = Add(state, step)
        next = Mul(shifted, w)
        seen = Identity(next)
    }}>
}}"""


def test_loops_of_known_length_are_written_out() -> None:
    model = parse(LOOP.format(inputs=""), count=np.array(3), on=np.array(True), w=ramp(2))
    module = module_from_onnx(model)
    value = ramp(2)
    wanted = run_onnxruntime(model.SerializeToString(), [value])
    for got, reference in zip(module(torch.from_numpy(value)), wanted, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), reference, rtol=1e-6)
    module(torch.from_numpy(value))[0].sum().backward()
    assert next(module.parameters()).grad is not None


def test_loops_of_unknown_length_are_refused_by_name() -> None:
    model = parse(LOOP.format(inputs=", int64 count"), on=np.array(True), w=ramp(2))
    model.graph.node[0].name = "repeat"
    module = module_from_onnx(model)
    with pytest.raises(
        ModelError, match=r"node 'repeat' \(Loop\): its count depends on the content"
    ):
        module(torch.ones(2), torch.tensor(3))


IF = """g (float[2] x{inputs}) => (float[2] y) {{
    y = If(flag) <
        then_branch = yes () => (float[2] a) {{ a = Mul(x, w) }},
        else_branch = no () => (float[2] b) {{ b = Add(x, v) }}
    >
}}"""


@pytest.mark.parametrize("flag", [True, False])
def test_a_known_branch_is_taken(flag: bool) -> None:
    module = module_from_onnx(
        parse(IF.format(inputs=""), flag=np.array(flag), w=ramp(2), v=ramp(2))
    )
    value = torch.full((2,), 3.0)
    wanted = value * torch.from_numpy(ramp(2)) if flag else value + torch.from_numpy(ramp(2))
    torch.testing.assert_close(module(value), wanted)


def test_an_unknown_branch_is_refused_by_name() -> None:
    module = module_from_onnx(parse(IF.format(inputs=", bool flag"), w=ramp(2), v=ramp(2)))
    with pytest.raises(
        ModelError, match=r"\(If\): its condition depends on the content of tensors"
    ):
        module(torch.ones(2), torch.tensor(True))


def test_operators_without_counterpart_are_refused_at_once() -> None:
    model = parse("g (float[4] x) => (float[N] y, int64[N] i) { y, i = Unique(x) }")
    with pytest.raises(ModelError, match=r"no way to train through Unique \(node "):
        module_from_onnx(model)


def test_a_shape_that_depends_on_content_is_refused_by_name() -> None:
    model = parse("g (float[4] x, int64[2] s) => (float[A,B] y) { y = Reshape(x, s) }")
    module = module_from_onnx(model)
    with pytest.raises(ModelError, match=r"\(Reshape\): operand 1 \('s'\) depends on the content"):
        module(torch.ones(4), torch.tensor([2, 2]))


def test_shapes_follow_the_inputs_of_a_dynamic_model() -> None:
    model = parse(
        """g (float[N,T] x) => (float[T,N] y) {
            shape = Shape(x)
            turned = Gather(shape, order)
            flat = Reshape(x, whole)
            y = Reshape(flat, turned)
        }""",
        order=np.array([1, 0]),
        whole=np.array([-1]),
    )
    module = module_from_onnx(model)
    for shape in ((2, 3), (4, 5)):
        value = torch.from_numpy(ramp(*shape))
        assert torch.equal(module(value), value.reshape(shape[1], shape[0]))


def test_old_models_list_their_weights_as_inputs() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 3, opset_import: ["" : 7]>
        g (float[2] x, float[2] w) => (float[2] y) { y = Mul(x, w) }"""
    )
    model.graph.initializer.append(numpy_helper.from_array(ramp(2), "w"))
    module = module_from_onnx(model)
    assert module.input_names == ("x",)
    np.testing.assert_allclose(module(torch.ones(2)).detach(), ramp(2))
