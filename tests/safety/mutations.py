"""Mutations of valid models: one field of the protobuf at a time becomes something that nobody would write.

Every mutation follows from a seed alone, so that one that fails can be looked at again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import onnx
from google.protobuf.descriptor import FieldDescriptor

INTEGERS: Final = (
    -(1 << 63), -(1 << 31) - 1, -(1 << 31), -65, -2, -1, 0, 1, 2, 3, 4, 7, 63, 64, 65, 255, 256, 1000, 10**6, 10**9,
    (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, (1 << 62), (1 << 63) - 1,
)  # fmt: skip
FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e9, -1e9, 3e38, -3e38, 1e300, float("inf"), float("-inf"), float("nan"))  # fmt: skip
TEXTS: Final = ("", "x", "y", "nothing", "?", "Relu", "Slice", "Loop", "ai.onnx.ml", "com.microsoft", "nearest", "\n", "é" * 9, "a" * 300)  # fmt: skip
DATA_FIELDS: Final = (
    "raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data",
)  # fmt: skip

_LIMITS: Final = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
}


def mutated(model: onnx.ModelProto, seed: int) -> onnx.ModelProto | None:
    """Return a copy of a model with one to three mutations.

    Args:
        model: A small model; is not changed.
        seed: Says where and how.

    Returns:
        The copy; None where its bytes were damaged so that they are no model any more.
    """
    chance = random.Random(seed)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if chance.random() < 0.04:
        return _damaged(copy, chance)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        kinds: Sequence[Callable[[onnx.ModelProto, random.Random], None]] = (
            _any_field, _any_field, _any_field, _attribute, _attribute, _tensor, _tensor, _shape, _nodes, _versions,
        )  # fmt: skip
        chance.choice(kinds)(copy, chance)
    return copy


def _damaged(model: onnx.ModelProto, chance: random.Random) -> onnx.ModelProto | None:
    """Flip, insert or leave out bytes."""
    content = bytearray(model.SerializeToString())
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(content))
        content[place] = chance.randrange(256)
    damaged = onnx.ModelProto()
    try:
        damaged.ParseFromString(bytes(content))
    except Exception:  # of no class that protobuf exports
        return None
    return damaged


def _messages(message: Any) -> Iterator[Any]:
    """Yield a message and all within it."""
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from _messages(inner)


def _any_field(model: onnx.ModelProto, chance: random.Random) -> None:
    """Change any field of any message: a value, the length of a list, whether it is there."""
    message = chance.choice(list(_messages(model.graph)))
    if chance.random() < 0.1:
        message = model
    fields = [field for field, _ in message.ListFields()]
    if chance.random() < 0.25 or not fields:
        fields = list(message.DESCRIPTOR.fields)
    field = chance.choice(fields)
    if field.is_repeated:
        _change_list(getattr(message, field.name), field, chance)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        if chance.random() < 0.5:
            message.ClearField(field.name)
        else:
            getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, _value(field, chance))


def _change_list(items: Any, field: FieldDescriptor, chance: random.Random) -> None:
    what = chance.randrange(4)
    is_message = field.type == FieldDescriptor.TYPE_MESSAGE
    if what == 0 and len(items):
        del items[chance.randrange(len(items))]
    elif what == 1 and len(items) > 1 and not is_message:
        first, second = (chance.randrange(len(items)) for _ in range(2))
        items[first], items[second] = items[second], items[first]
    elif what == 2 and len(items) and not is_message:
        items[chance.randrange(len(items))] = _value(field, chance)
    elif is_message:
        if len(items):
            items.add().CopyFrom(items[chance.randrange(len(items))])
        else:
            items.add()
    else:
        items.append(_value(field, chance))


def _value(field: FieldDescriptor, chance: random.Random) -> Any:
    if field.type in _LIMITS:
        least, most = _LIMITS[field.type]
        return min(max(chance.choice(INTEGERS), least), most)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return chance.choice(field.enum_type.values).number
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        number = chance.choice(FLOATS)
        narrow = field.type == FieldDescriptor.TYPE_FLOAT
        return max(min(number, 3e38), -3e38) if narrow and abs(number) == 1e300 else number
    if field.type == FieldDescriptor.TYPE_BYTES:
        return chance.choice([*(text.encode() for text in TEXTS), b"\xff\xfe", bytes(8)])
    return chance.choice(TEXTS)


def _attribute(model: onnx.ModelProto, chance: random.Random) -> None:
    """Give an attribute an extreme value, another type, or a node one that another operator has."""
    nodes = [each for each in _messages(model.graph) if isinstance(each, onnx.NodeProto)]
    if not nodes:
        return
    node = chance.choice(nodes)
    if not node.attribute or chance.random() < 0.25:
        node.attribute.append(onnx.helper.make_attribute(_name_of_attribute(node, chance), 1))
    attribute = chance.choice(list(node.attribute))
    kind = chance.randrange(6)
    if kind == 0:
        attribute.type = chance.choice(onnx.AttributeProto.AttributeType.values())
    elif kind == 1:
        attribute.name = _name_of_attribute(node, chance)
    elif kind == 2 and attribute.type == onnx.AttributeProto.INTS:
        count = chance.choice((0, 1, 2, len(attribute.ints) + 1, 70))
        attribute.ints[:] = [chance.choice(INTEGERS) for _ in range(count)]
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = chance.choice(INTEGERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = chance.choice([n for n in FLOATS if abs(n) != 1e300])
    elif attribute.type == onnx.AttributeProto.FLOATS:
        numbers = [n for n in FLOATS if abs(n) != 1e300]
        attribute.floats[:] = [chance.choice(numbers) for _ in attribute.floats]
    elif attribute.type == onnx.AttributeProto.INTS and attribute.ints:
        attribute.ints[chance.randrange(len(attribute.ints))] = chance.choice(INTEGERS)
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = chance.choice(TEXTS).encode()


def _name_of_attribute(node: onnx.NodeProto, chance: random.Random) -> str:
    if onnx.defs.has(node.op_type):
        known = sorted(onnx.defs.get_schema(node.op_type).attributes)
        if known:
            return chance.choice(known)
    return chance.choice(("axis", "axes", "to", "mode", "value", "pads", "perm"))


def _tensor(model: onnx.ModelProto, chance: random.Random) -> None:
    """Give a tensor another type, another field for its numbers, other dimensions or extreme numbers."""
    tensors = [each for each in _messages(model.graph) if isinstance(each, onnx.TensorProto)]
    if not tensors:
        _any_field(model, chance)
        return
    tensor = chance.choice(tensors)
    kind = chance.randrange(5)
    if kind == 0:
        tensor.data_type = chance.choice(onnx.TensorProto.DataType.values())
    elif kind == 1:
        _move_numbers(tensor, chance)
    elif kind == 2:
        _change_list(tensor.dims, tensor.DESCRIPTOR.fields_by_name["dims"], chance)
    elif kind == 3:
        _set_numbers(tensor, chance)
    else:
        tensor.data_location = chance.choice((0, 1))
        tensor.external_data.add(key="location", value=chance.choice(TEXTS))


def _move_numbers(tensor: onnx.TensorProto, chance: random.Random) -> None:
    count = max(1, min(4096, abs(onnx_size(tensor))))
    for name in DATA_FIELDS:
        tensor.ClearField(name)
    name = chance.choice(DATA_FIELDS)
    field = tensor.DESCRIPTOR.fields_by_name[name]
    if name == "raw_data":
        tensor.raw_data = bytes(count * chance.choice((1, 2, 4, 8)))
    else:
        getattr(tensor, name).extend(_value(field, chance) for _ in range(count))


def _set_numbers(tensor: onnx.TensorProto, chance: random.Random) -> None:
    """Write extreme numbers of the tensor's own type into the field that the type reads."""
    try:
        array = onnx.numpy_helper.to_array(tensor).copy()
    except Exception:  # another mutation made it unreadable
        return
    if array.size == 0 or array.dtype.kind not in "iuf":
        return
    flat = array.reshape(-1)
    number = chance.choice(INTEGERS) if array.dtype.kind in "iu" else chance.choice(FLOATS)
    if array.dtype.kind in "iu":
        bits, signed = 8 * array.dtype.itemsize, array.dtype.kind == "i"
        number = number & ((1 << bits) - 1)
        number -= (1 << bits) if signed and number >> (bits - 1) else 0
    elif array.dtype.itemsize < 8 and abs(number) == 1e300:
        number = 3e4
    flat[chance.randrange(flat.size)] = min(number, 6e4) if array.dtype.itemsize == 2 else number
    name = tensor.name
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, name))


def onnx_size(tensor: onnx.TensorProto) -> int:
    """Return the number of elements that a tensor declares."""
    size = 1
    for dim in tensor.dims:
        size *= dim
    return size


def _shape(model: onnx.ModelProto, chance: random.Random) -> None:
    """Change a declared type or dimension."""
    infos = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    if not infos:
        return
    declared = chance.choice(infos).type
    if declared.WhichOneof("value") != "tensor_type" or chance.random() < 0.2:
        declared.tensor_type.elem_type = chance.choice(onnx.TensorProto.DataType.values())
        return
    dims = declared.tensor_type.shape.dim
    if not dims or chance.random() < 0.3:
        dims.add().dim_value = chance.choice(INTEGERS)
    elif chance.random() < 0.2:
        del dims[chance.randrange(len(dims))]
    elif chance.random() < 0.4:
        dims[chance.randrange(len(dims))].dim_param = chance.choice(("n", *TEXTS))
    else:
        dims[chance.randrange(len(dims))].dim_value = chance.choice(INTEGERS)


def _nodes(model: onnx.ModelProto, chance: random.Random) -> None:
    """Rewire, rename, repeat or leave out nodes, or give them another operator of the same model."""
    nodes = model.graph.node
    if not nodes:
        return
    node = chance.choice(list(nodes))
    names = [name for each in nodes for name in (*each.input, *each.output)]
    names += [value.name for value in (*model.graph.input, *model.graph.initializer)]
    kind = chance.randrange(6)
    if kind == 0 and node.input:
        node.input[chance.randrange(len(node.input))] = chance.choice([*names, ""])
    elif kind == 1 and node.input:
        del node.input[chance.randrange(len(node.input)) :]
    elif kind == 2:
        node.input.append(chance.choice([*names, ""]))
    elif kind == 3:
        node.op_type = chance.choice(_operators())
    elif kind == 4:
        node.output.append(chance.choice(("", f"more{len(node.output)}")))
    else:
        nodes.remove(node)


def _operators() -> list[str]:
    return sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})


def _versions(model: onnx.ModelProto, chance: random.Random) -> None:
    if chance.random() < 0.5 or not model.opset_import:
        model.ir_version = chance.choice((3, 4, 7, 8, 10, 13, chance.choice(INTEGERS)))
    else:
        entry = chance.choice(list(model.opset_import))
        entry.version = chance.choice((*range(6, 29), chance.choice(INTEGERS)))
