"""Puts the ONNX models of neighbouring stages together into one, ready for an engine.

Values that nothing outside reads become internal, so that an engine may fuse across the seams and
allocates no interface buffers for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no stubs

from samba_onnx.errors import PefFormatError
from samba_onnx.pef.reader import Pef

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
        A new model; nodes carry no metadata, which an engine would only have to parse.

    Raises:
        PefFormatError: The stages disagree about an operator set, or lack an input or output.
    """
    interface = _by_name(_interface(models), (*inputs, *outputs))
    graph = onnx.GraphProto(name=" + ".join(model.graph.name for model in models) or "stage")
    graph.input.extend(interface[name] for name in inputs)
    graph.output.extend(interface[name] for name in outputs)
    # Stages that read the same weight have it each, and a graph may have a name only once.
    graph.initializer.extend(_unique(item for model in models for item in model.graph.initializer))
    graph.sparse_initializer.extend(
        item for model in models for item in model.graph.sparse_initializer
    )
    graph.value_info.extend(_inner_values(models, {*inputs, *outputs}))
    for model in models:
        graph.node.extend(model.graph.node)
    _strip(graph.node)
    merged = onnx.ModelProto(
        # The newest format of them can say all that older ones can.
        ir_version=max(model.ir_version for model in models),
        opset_import=_opsets(models),
        graph=graph,
    )
    functions = {(f.domain, f.name, f.overload): f for model in models for f in model.functions}
    merged.functions.extend(functions.values())
    return merged


def place_weights(model: onnx.ModelProto, location: str, offset: int) -> None:
    """Point external initializers at the PEF itself, where an engine maps or reads them.

    Args:
        model: Is changed in place; its external offsets count from the start of a PEF member.
        location: File name of the PEF, without folder.
        offset: Where that member begins inside the PEF.
    """
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            # Members of a PEF are stored and not compressed, so that the PEF is its own file of external
            # data: an engine maps the weights where they lie, and no copy of them is made.
            entries["location"] = location
            entries["offset"] = str(int(entries.get("offset", "0")) + offset)
            del tensor.external_data[:]
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)


def initializer(pef: Pef, name: str) -> Any:
    """Return the content of an initializer that is kept inside a stage's own model.

    Args:
        pef: The PEF.
        name: The name of a weight or constant.

    Returns:
        A fresh array.

    Raises:
        PefFormatError: No stage has it.
    """
    for stage in pef.manifest.stages().values():
        if name in stage.weights:
            for tensor in pef.stage_model(stage.id).graph.initializer:
                if tensor.name == name:
                    array = np.array(onnx.numpy_helper.to_array(tensor), order="C")
                    # numpy has texts of a fixed width; runs take and return them as objects.
                    return array.astype(object) if array.dtype.kind in "UST" else array
    raise PefFormatError(f"no stage holds {name!r}; convert the model again")


def initializer_bytes(pef: Pef, stage: int) -> dict[str, int]:
    """Return the bytes of the initializers that are kept inside a stage's own model, by name.

    Args:
        pef: The PEF.
        stage: Id of the stage.

    Raises:
        PefFormatError: The stage is no ONNX model, or an initializer's content is not of its type.
    """
    # Looked at only: the checks of all that a stage says come when it is prepared.
    try:
        model = onnx.ModelProto.FromString(bytes(pef.member(pef.manifest.stages()[stage].member)))
        return {
            # Raw bytes are as many as the value has: nothing is decoded where there are such.
            tensor.name: len(tensor.raw_data) or onnx.numpy_helper.to_array(tensor).nbytes
            for tensor in model.graph.initializer
            if tensor.data_location != onnx.TensorProto.EXTERNAL
        }
    except (DecodeError, ValueError) as error:
        raise PefFormatError(f"stage {stage} is no valid ONNX model: {error}") from None


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
    values: Iterable[onnx.ValueInfoProto], names: Sequence[str]
) -> dict[str, onnx.ValueInfoProto]:
    values_by_name = {value.name: value for value in values}
    missing = [name for name in names if name not in values_by_name]
    if missing:
        raise PefFormatError(
            f"the manifest lists {missing[0]!r}, which its stage's ONNX model does not have; "
            "convert the model again"
        )
    return values_by_name


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
