"""Stage models that are broken, or others than the manifest of the toy describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

MUL, HOST, ADD = "stages/000_FWD.onnx", "stages/001_cpu.onnx", "stages/002_FWD.onnx"


def _rename_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = model.graph.node[0].input[0] = "other"


def _rename_output(model: onnx.ModelProto) -> None:
    model.graph.output[0].name = model.graph.node[0].output[0] = "other"


def _more_inputs(model: onnx.ModelProto) -> None:
    model.graph.input.append(onnx.helper.make_tensor_value_info("z", 1, [1]))


def _more_initializers(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(1, "f4"), "z"))


def _fewer_initializers(model: onnx.ModelProto) -> None:
    del model.graph.initializer[:]
    model.graph.node[0].input[1] = model.graph.node[0].input[0]


def _other_shape(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 5


def _other_rank(model: onnx.ModelProto) -> None:
    del model.graph.input[0].type.tensor_type.shape.dim[0]


def _other_type(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE


def _sequence(model: onnx.ModelProto) -> None:
    inner = onnx.helper.make_tensor_type_proto(1, [4, 300])
    model.graph.input[0].type.CopyFrom(onnx.helper.make_sequence_type_proto(inner))


def _initializer_shape(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = 100


def _initializer_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = onnx.TensorProto.INT32


def _external(**changes: str | None) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        entries = {entry.key: entry.value for entry in tensor.external_data} | changes
        del tensor.external_data[:]
        for key, value in entries.items():
            if value is not None:
                tensor.external_data.add(key=key, value=value)

    return change


def _hidden_constant(model: onnx.ModelProto) -> None:
    """An external tensor where nobody looks for one: in a node's attribute."""
    secret = onnx.TensorProto(name="secret", data_type=1, dims=[4])
    secret.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "weights.safetensors"), ("offset", "0"), ("length", "16")):
        secret.external_data.add(key=key, value=value)
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], value=secret))


def _cycle(model: onnx.ModelProto) -> None:
    model.graph.node.append(onnx.helper.make_node("Add", ["p", "q"], ["q"]))
    model.graph.node.append(onnx.helper.make_node("Add", ["q", "q"], ["p"]))


def _undefined(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "nothing"


def _future(model: onnx.ModelProto) -> None:
    model.ir_version = 9999


def _no_graph(model: onnx.ModelProto) -> None:
    model.ClearField("graph")


_CHANGES: tuple[tuple[str, str, Callable[[onnx.ModelProto], None]], ...] = (
    ("input of another name", HOST, _rename_input),
    ("output of another name", HOST, _rename_output),
    ("one input more", HOST, _more_inputs),
    ("one initializer more", HOST, _more_initializers),
    ("one initializer less", MUL, _fewer_initializers),
    ("input of another shape", HOST, _other_shape),
    ("input of another rank", HOST, _other_rank),
    ("output of another type", HOST, _other_type),
    ("input is a sequence", HOST, _sequence),
    ("initializer of another shape", MUL, _initializer_shape),
    ("initializer of another type", MUL, _initializer_type),
    ("content in a system file", MUL, _external(location="/etc/passwd")),
    ("content in a parent folder", MUL, _external(location="../weights.safetensors")),
    ("content in another file", MUL, _external(location="weights.bin")),
    ("content nowhere", MUL, _external(location=None)),
    ("content in the header", MUL, _external(offset="0")),
    ("content at another weight", MUL, _external(offset="5312")),
    ("content before the file", MUL, _external(offset="-4096")),
    ("content behind the file", MUL, _external(offset="99999999999")),
    ("content at a word", MUL, _external(offset="start")),
    ("content of no length", MUL, _external(length=None)),
    ("content of another length", MUL, _external(length="4")),
    ("content with a checksum of its own", MUL, _external(checksum="00")),
    ("content of a constant elsewhere", HOST, _hidden_constant),
    ("cycle", HOST, _cycle),
    ("undefined value", HOST, _undefined),
    ("future IR version", HOST, _future),
    ("no graph", HOST, _no_graph),
)


def hostile_stages(members: dict[str, bytes]) -> Iterator[tuple[str, str, bytes]]:
    """Yield name, member and content of every broken stage."""
    good = members[HOST]
    yield "empty stage", HOST, b""
    yield "stage of text", HOST, b"not a model"
    yield "stage of noise", HOST, bytes((n * n * 31 + n) % 251 for n in range(5000))
    yield "stage cut off", HOST, good[: len(good) // 2]
    yield "another stage", HOST, members[MUL]
    yield "stages exchanged", ADD, members[MUL]
    for name, member, change in _CHANGES:
        model = onnx.load_model_from_string(members[member])
        change(model)
        yield name, member, model.SerializeToString(deterministic=True)
