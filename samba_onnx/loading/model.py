"""Load a model: open, recognise, parse, check."""

from __future__ import annotations

import dataclasses
import functools
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no stubs

from samba_onnx.errors import InvalidModelError, ModelError, ModelLimitError, UsageError
from samba_onnx.facts.versions import OLDEST_OPSET
from samba_onnx.loading.detection import HEAD_BYTES, describe
from samba_onnx.loading.file_tensors import ExternalFiles
from samba_onnx.loading.lifting import lift_weights
from samba_onnx.loading.normalising import normalise
from samba_onnx.loading.zip_maps import without_zip_maps
from samba_onnx.pef.manifest import SourceModel
from samba_onnx.pef.original_files import OriginalFile
from samba_onnx.safety.all_tensors import all_tensors
from samba_onnx.safety.files import open_regular, printable
from samba_onnx.safety.graph_checks import check_model
from samba_onnx.safety.old_opsets import converted, default_opset
from samba_onnx.safety.operators import operator

__all__ = ["LoadedModel", "load_model"]


@dataclass(frozen=True)
class LoadedModel:
    """A checked model."""

    model: ir.Model
    """Nodes are in topological order; external and large inline weights are mapped, not read."""
    path: Path | None
    """The file that it came from; None for a ``ModelProto``."""
    summary: SourceModel
    converted: Callable[[], onnx.ModelProto] | None = None
    """Makes the model with all of its weights, converted to an operator set that engines run and with
    tensors in the place of maps; None where the model itself is of such a one."""
    notes: tuple[str, ...] = ()
    """How the model's interface differs from the one in the file, in sentences for people."""
    digests: Callable[[], tuple[OriginalFile, ...]] = tuple
    """Reads the model's file, and the files beside it with its external data, as a whole, and returns their
    names, sizes and SHA-256; nothing for a ``ModelProto``. The files are those that were opened here, also
    if others have their places now."""

    def source(self, given: str | os.PathLike[str] | onnx.ModelProto) -> Path | onnx.ModelProto:
        """Return what an engine runs in order to know what the original answers.

        Args:
            given: What the model was loaded from.
        """
        if self.converted is not None:
            return self.converted()
        return given if isinstance(given, onnx.ModelProto) else self.path or Path(given)


def load_model(source: str | os.PathLike[str] | onnx.ModelProto) -> LoadedModel:
    """Load and check an ONNX model without reading its weights.

    Args:
        source: The path of an ONNX file, whose external data lies in the same folder or below, or
            a model in memory with its data inside. A model in memory is not changed.

    Returns:
        The model, ready for passes.

    Raises:
        ModelFileError: The file or its external data cannot be read safely.
        InvalidModelError: The content is no valid ONNX model.
        ModelLimitError: The model asks for more than a safe limit allows.
        UsageError: ``source`` is neither a path nor a model.
    """
    if isinstance(source, onnx.ModelProto):
        name = printable(source.graph.name or "model")
        return _finish(source, name, None, ExternalFiles(None))
    if not isinstance(source, str | os.PathLike):
        raise UsageError(
            f"expected a path or an onnx.ModelProto as the model, got {type(source).__name__}"
        )
    path = Path(source)
    files = ExternalFiles(path.parent)
    # A location that no file can state, so that it stands for this file's own content only.
    own = f"\0{secrets.token_hex(8)}"
    with open_regular(path) as file:
        proto = _parse(file, path, own)
        files.add(own, file)
    loaded = _finish(proto, path.name, path, files)
    return dataclasses.replace(
        loaded, digests=functools.partial(files.digests, own, printable(path.name))
    )


def _parse(file: BinaryIO, path: Path, own: str) -> onnx.ModelProto:
    """Parse an open file, leaving large weights where they are."""
    unlike = describe(file.read(HEAD_BYTES))
    if unlike is not None:
        raise InvalidModelError(f"{printable(path)}: {unlike}", path=path)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(lift_weights(file, own))
    except ModelLimitError as error:
        raise error.within(printable(path), path=path) from None
    except (DecodeError, InvalidModelError) as error:
        raise InvalidModelError(
            f"{printable(path)}: it cannot be parsed as an ONNX model: it is truncated, corrupt or "
            f"another kind of file ({printable(error)})",
            path=path,
        ) from None
    return proto


def _finish(
    proto: onnx.ModelProto, name: str, path: Path | None, files: ExternalFiles
) -> LoadedModel:
    """Check a parsed model and turn it into the IR."""
    shown = printable(path or name)
    try:
        check_model(proto, external_size=files.size)
        summary, runnable = _summary(proto, name), None
        if 0 < default_opset(proto) < OLDEST_OPSET:
            # The converter makes new nodes, which are checked like the user's own.
            proto = converted(proto)
            check_model(proto, external_size=files.size)
            runnable = functools.partial(_with_weights, proto, files)
        proto, notes = without_zip_maps(proto)
        if notes:
            runnable = functools.partial(_with_weights, proto, files)
        # What was read from a file belongs to nobody else. A converted model is still needed as it
        # is, and one from memory is the user's.
        owned = path is not None and runnable is None
        model = ir.from_proto(normalise(proto, owned=owned))
    except ModelError as error:
        raise error.within(shown, path=path) from None
    except ir.serde.SerdeError as error:
        # What the checks let pass, and onnx_ir has no form for: no engine has one either.
        raise InvalidModelError(
            f"{shown}: its graph is malformed ({_innermost(error)})", path=path
        ) from None
    # onnx_ir would open paths of external data by itself when the content is asked for.
    _map_tensors(model, files)
    if path is None:
        _copy_renamable(model)
    _trim_inputs(model)
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        # Exporters write nodes in any order without a cycle; all passes take them in order.
        graph.sort()
    return LoadedModel(model, path, summary, runnable, notes)


def _innermost(error: BaseException) -> str:
    """Return what an error that was raised from others says at the beginning."""
    while error.__cause__ is not None:
        error = error.__cause__
    return printable(" ".join((str(error) or type(error).__name__).split()), 200)


def _with_weights(proto: onnx.ModelProto, files: ExternalFiles) -> onnx.ModelProto:
    """Return a model with the content of its weights inside."""
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    # Constants and subgraphs have their content in the file as well, since it is lifted from there too.
    for tensor in all_tensors(whole):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            content = ir.from_proto(tensor)
            assert isinstance(content, ir.ExternalTensor)
            tensor.raw_data = files.tensor(content).tobytes()
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
    return whole


def _graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """Yield all graphs, those of functions and all subgraphs included."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield graph
        yield from graph.subgraphs()


def _map_tensors(model: ir.Model, files: ExternalFiles) -> None:
    """Replace tensors that would open a path by tensors over mapped files."""
    for graph in _graphs(model):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = files.tensor(value.const_value)
        for node in graph:
            for key, attribute in node.attributes.items():
                content = attribute.value
                if isinstance(content, ir.ExternalTensor):
                    node.attributes[key] = ir.AttrTensor(key, files.tensor(content))
                elif attribute.type == ir.AttributeType.TENSORS and content is not None:
                    mapped = [
                        files.tensor(each) if isinstance(each, ir.ExternalTensor) else each
                        for each in content
                    ]
                    node.attributes[key] = ir.AttrTensors(key, mapped)


def _copy_renamable(model: ir.Model) -> None:
    """Copy the tensors of a model in memory that passes may give other names.

    A value renames its tensor, and with it the user's own ``TensorProto``. Names of subgraphs' and
    functions' tensors, and of Constants, are made unique; the main graph's weights keep theirs.
    """
    for graph in _graphs(model):
        inner = () if graph is model.graph else graph.initializers.values()
        for value in inner:
            if value.const_value is not None:
                value.const_value = _copied(value.const_value)
        for node in graph:
            for key, attribute in node.attributes.items():
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    tensor = _copied(attribute.as_tensor())
                    node.attributes[key] = ir.AttrTensor(key, tensor, attribute.doc_string)


def _copied(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    if not isinstance(tensor, ir.serde.TensorProtoTensor):
        return tensor
    proto = onnx.TensorProto()
    proto.CopyFrom(tensor.raw)
    return ir.serde.TensorProtoTensor(proto)


def _trim_inputs(model: ir.Model) -> None:
    """Drop left-out inputs at the end of a node's list, where they mean nothing.

    onnxruntime's DFT reads a null pointer when both of its optional inputs are there without name.
    """
    for graph in _graphs(model):
        for node in graph:
            used = len(node.inputs)
            while used and node.inputs[used - 1] is None:
                used -= 1
            if used == len(node.inputs):
                continue
            # A subgraph states no operator sets of its own.
            version = graph.opset_imports.get(node.domain, model.opset_imports.get(node.domain, 0))
            definition = operator(node.op_type, node.domain, version)
            if definition is not None:
                # Not below the fewest that the operator takes, which may be left out by name only.
                node.resize_inputs(max(used, definition.inputs[0]))


def _summary(proto: onnx.ModelProto, name: str) -> SourceModel:
    producer = f"{proto.producer_name} {proto.producer_version}".strip()
    return SourceModel(
        name=printable(name),
        producer=printable(producer),
        opset=default_opset(proto),
        nodes=len(proto.graph.node),
    )
