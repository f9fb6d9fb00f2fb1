from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.errors import InternalError
from samba_onnx.passes.rewrites.interface import Interface
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
