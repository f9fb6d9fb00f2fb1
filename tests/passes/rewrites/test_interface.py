from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.errors import InternalError
from samba_onnx.passes.rewrites.interface import Interface, Port
from tests.passes.rewrites.applying import parse

GRAPH = "g (float[batch,4] x, seq(float[N]) s) => (float[batch,?] y) { y = Relu(x) }"


def test_text_names_type_and_dimensions() -> None:
    interface = Interface.of(parse(GRAPH))
    assert [str(port) for port in interface.inputs] == [
        "x: tensor(float)[batch,4]",
        "s: seq(tensor(float))[N]",
    ]
    assert str(interface.outputs[0]) == "y: tensor(float)[batch,?]"


@pytest.mark.parametrize(
    ("shape", "static", "fine"),
    [
        ((8, None), True, True),
        ((8, None), False, False),
        ((8, 5), True, True),
        (("batch", None), False, True),
        (("other", None), True, False),
        (("batch", "made_up"), True, False),
        (("batch", None, 1), True, False),
    ],
)
def test_only_declared_passes_make_dimensions_static(
    shape: tuple[int | str | None, ...], static: bool, fine: bool
) -> None:
    model = parse(GRAPH)
    interface = Interface.of(model)
    model.graph.outputs[0].shape = ir.Shape(shape)
    if fine:
        interface.check(model, "Some", static_inputs=False, static_outputs=static)
    else:
        with pytest.raises(InternalError, match="pass Some changed the interface: outputs had y"):
            interface.check(model, "Some", static_inputs=True, static_outputs=static)


def test_renamed_retyped_missing_and_reordered_ports_are_refused() -> None:
    for change in ("rename", "retype", "drop", "reorder", "static"):
        model = parse(GRAPH)
        interface = Interface.of(model)
        first, second = model.graph.inputs
        if change == "rename":
            first.name = "z"
        elif change == "retype":
            first.dtype = ir.DataType.DOUBLE
        elif change == "drop":
            model.graph.inputs.remove(second)
        elif change == "reorder":
            model.graph.inputs.clear()
            model.graph.inputs.extend([second, first])
        else:
            first.shape = ir.Shape((16, 4))
            interface.check(model, "Bind", static_inputs=True, static_outputs=False)
        with pytest.raises(InternalError, match="inputs"):
            interface.check(model, "Some", static_inputs=False, static_outputs=True)


def test_a_port_without_type_or_rank_says_so() -> None:
    port = Port("x", "", None)
    assert str(port) == "x: [?]"
    assert str(Port("x", "tensor(float)", ())) == "x: tensor(float)[]"


@pytest.mark.parametrize(
    ("before", "after", "fine"),
    [
        (Port("x", "", None), Port("x", "tensor(float)", (2,)), True),
        (Port("x", "", (2,)), Port("x", "tensor(float)", (2,)), True),
        (Port("x", "tensor(float)", None), Port("x", "tensor(float)", ("n",)), True),
        (Port("x", "tensor(float)", (2,)), Port("x", "tensor(float)", None), False),
        (Port("x", "", None), Port("x", "tensor(float)", None), True),
        (Port("x", "tensor(float)", (2,)), Port("x", "tensor(double)", (2,)), False),
        (Port("x", "tensor(float)", (2,)), Port("x", "", (2,)), False),
        (Port("x", "tensor(float)", (None,)), Port("z", "tensor(float)", (2,)), False),
        (Port("x", "tensor(float)", (2, None)), Port("x", "tensor(float)", (2, 3)), True),
        (Port("x", "tensor(float)", (2, None)), Port("x", "tensor(float)", (4, 3)), False),
        (Port("x", "tensor(float)", (2,)), Port("x", "tensor(float)", (2, 3)), False),
    ],
)
def test_a_port_may_only_become_better_known(before: Port, after: Port, fine: bool) -> None:
    assert before.may_become(after, static_dimensions=True) == fine
    assert not before.may_become(after, static_dimensions=False)
    assert before.may_become(before, static_dimensions=False)


def test_a_pass_that_may_add_inputs_adds_them_behind_the_others() -> None:
    model = parse(GRAPH)
    interface = Interface.of(model)
    new = ir.Value(name="w", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    model.graph.inputs.append(new)
    after = interface.check(model, "Some", static_inputs=False, static_outputs=False, adds_inputs=True)  # fmt: skip
    assert [port.name for port in after.inputs] == ["x", "s", "w"]
    with pytest.raises(InternalError, match="number of inputs from 2 to 3"):
        interface.check(model, "Some", static_inputs=True, static_outputs=True)
    model.graph.inputs.remove(new)
    model.graph.inputs.insert(0, new)
    with pytest.raises(InternalError, match="changed the interface: inputs had x"):
        interface.check(model, "Some", static_inputs=True, static_outputs=True, adds_inputs=True)
    model = parse(GRAPH)
    model.graph.outputs.clear()
    with pytest.raises(InternalError, match="number of outputs from 1 to 0"):
        interface.check(model, "Some", static_inputs=True, static_outputs=True)
