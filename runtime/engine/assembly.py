"""Puts the ONNX models of neighbouring stages together into one, ready for onnxruntime.

Values that nothing outside reads become internal, so that onnxruntime fuses across the seams and
allocates no interface buffers for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import onnx

from samba_onnx.errors import PefFormatError
from samba_onnx.runtime.elements import onnx_number
from samba_onnx.runtime.memory import DeviceTensor

_INLINE_BYTES = 1024
"""Tensors of shapes and bounds, which onnxruntime's optimizer wants to see, are smaller."""

Named = TypeVar("Named", onnx.ValueInfoProto, onnx.TensorProto)


def merge_stages(
    models: Sequence[onnx.ModelProto], inputs: Sequence[str], outputs: Sequence[str]
) -> onnx.ModelProto:
    """Concatenate stage models in execution order.

    Args:
        models: One or more stages; value and initializer names mean the same in all of them.
        inputs: Values that the result takes from outside, in order.
        outputs: Values that the result gives to the outside, in order.

    Returns:
        A new model; nodes carry no metadata, which onnxruntime would only have to parse.

    Raises:
        PefFormatError: The stages disagree about an operator set, or lack an input or output.
    """
    interface = _by_name(_interface(models), (*inputs, *outputs))
    graph = onnx.GraphProto(name=" + ".join(model.graph.name for model in models) or "stage")
    graph.input.extend(interface[name] for name in inputs)
    graph.output.extend(interface[name] for name in outputs)
    graph.initializer.extend(_unique(item for model in models for item in model.graph.initializer))
    graph.sparse_initializer.extend(
        item for model in models for item in model.graph.sparse_initializer
    )
    graph.value_info.extend(_inner_values(models, {*inputs, *outputs}))
    for model in models:
        graph.node.extend(model.graph.node)
    _strip(graph.node)
    merged = onnx.ModelProto(
        ir_version=max(model.ir_version for model in models),
        opset_import=_opsets(models),
        graph=graph,
    )
    functions = {(f.domain, f.name, f.overload): f for model in models for f in model.functions}
    merged.functions.extend(functions.values())
    return merged


def place_weights(model: onnx.ModelProto, location: str, offset: int) -> None:
    """Point external initializers at the PEF itself, where onnxruntime maps them.

    Args:
        model: Is changed in place; its external offsets count from the start of a PEF member.
        location: File name of the PEF, without folder.
        offset: Where that member begins inside the PEF.
    """
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            entries["location"] = location
            entries["offset"] = str(int(entries.get("offset", "0")) + offset)
            del tensor.external_data[:]
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)


def freeze_inputs(
    model: onnx.ModelProto, tensors: Mapping[str, DeviceTensor]
) -> dict[str, DeviceTensor]:
    """Turn inputs into initializers, so that onnxruntime may compute with them in advance.

    Args:
        model: Is changed in place.
        tensors: Inputs by name, with values whose elements do not share bytes. They must keep
            these values as long as the session lives.

    Returns:
        Those whose content onnxruntime must be given, for the model only names them; the content
        of small ones is in the model.
    """
    kept = [value for value in model.graph.input if value.name not in tensors]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    outside: dict[str, DeviceTensor] = {}
    for name, tensor in tensors.items():
        proto = model.graph.initializer.add(
            name=name, data_type=onnx_number(tensor.element), dims=tensor.shape
        )
        if tensor.items.nbytes <= _INLINE_BYTES:
            proto.raw_data = tensor.items.tobytes()
            continue
        proto.data_location = onnx.TensorProto.EXTERNAL
        for key, text in (("location", name), ("offset", 0), ("length", tensor.items.nbytes)):
            proto.external_data.add(key=key, value=str(text))
        outside[name] = tensor
    return outside


def _interface(models: Iterable[onnx.ModelProto]) -> Iterator[onnx.ValueInfoProto]:
    for model in models:
        yield from model.graph.input
        yield from model.graph.output


def _inner_values(
    models: Iterable[onnx.ModelProto], outer: set[str]
) -> Iterator[onnx.ValueInfoProto]:
    """Yield the types of values that are neither input nor output of the whole."""
    values = (value for model in models for value in (*model.graph.output, *model.graph.value_info))
    return (value for value in _unique(values) if value.name not in outer)


def _by_name(
    values: Iterable[onnx.ValueInfoProto], wanted: Sequence[str]
) -> dict[str, onnx.ValueInfoProto]:
    found = {value.name: value for value in values}
    missing = [name for name in wanted if name not in found]
    if missing:
        raise PefFormatError(
            f"the manifest lists {missing[0]!r}, which its stage's ONNX model does not have; "
            "convert the model again"
        )
    return found


def _unique(
    items: Iterable[Named],
) -> Iterator[Named]:
    seen: set[str] = set()
    for item in items:
        if item.name not in seen:
            seen.add(item.name)
            yield item


def _opsets(models: Iterable[onnx.ModelProto]) -> list[onnx.OperatorSetIdProto]:
    versions: dict[str, int] = {}
    for opset in (opset for model in models for opset in model.opset_import):
        if versions.setdefault(opset.domain, opset.version) != opset.version:
            raise PefFormatError(
                f"stages use versions {versions[opset.domain]} and {opset.version} of operator set "
                f"{opset.domain or 'ai.onnx'!r}; convert the model again"
            )
    return [onnx.helper.make_opsetid(domain, version) for domain, version in versions.items()]


def _strip(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
