"""What users name as a model: which kind it is, which ones a folder holds, and whether it changed."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samba_onnx.errors import UsageError
from samba_onnx.safety.files import open_regular, printable, read_document
from samba_onnx.version import installed_version

if TYPE_CHECKING:
    import onnx

__all__ = [
    "configuration_file",
    "find_models",
    "is_configuration",
    "is_factory",
    "is_torch_model",
    "model_digest",
]

CONFIGURATION = "config.json"
"""What Hugging Face calls the file that describes a model."""
_ARCHIVE = ".pt2"
_FILES = (".onnx", _ARCHIVE)
_PIECE = 1 << 20
# Neither a path with a folder in it nor a drive with its letter is a function.
_FACTORY = re.compile(r"[^/\\\\:]+:[^/\\\\:]+")


def is_factory(model: str) -> bool:
    """Return whether a text names a Python function, as ``package.module:factory``."""
    return _FACTORY.fullmatch(model) is not None and not os.path.lexists(model)


def is_configuration(model: str) -> bool:
    """Return whether a text names a Hugging Face configuration: ``config.json`` or its folder."""
    path = Path(model)
    return path.name == CONFIGURATION or (path / CONFIGURATION).is_file()


def configuration_file(model: str) -> Path:
    """Return the file of a configuration that is named by itself or by its folder."""
    path = Path(model)
    return path if path.name == CONFIGURATION else path / CONFIGURATION


def is_torch_model(model: str) -> bool:
    """Return whether torch makes the model: of a factory, a ``.pt2`` file or a configuration."""
    return is_factory(model) or model.endswith(_ARCHIVE) or is_configuration(model)


def find_models(names: Iterable[str]) -> tuple[str, ...]:
    """Return the models that names stand for.

    Args:
        names: Names of models; of folders, for all ONNX and ``.pt2`` files in and below them and every
            ``config.json`` with no such file beside it; of ``.txt`` files, for the names that stand in
            their lines.

    Returns:
        Models as ``analyze`` takes them, each once, in the order of the names, those of a folder in
        the order of their paths.

    Raises:
        UsageError: A name stands for nothing.
    """
    models = dict.fromkeys(model for name in names for model in _models(name))
    return tuple(models)


def _models(name: str) -> Iterator[str]:
    """Return what one name stands for."""
    path = Path(name)
    if path.is_dir():
        models = list(_models_below(path))
        if not models:
            raise UsageError(
                f"{printable(name)}: there is no model in this folder or below; expected .onnx or .pt2 "
                "files, or a config.json of Hugging Face"
            )
        yield from models
    elif path.suffix == ".txt":
        yield from _listed(name)
    elif (path.is_file() and (path.suffix in _FILES or path.name == CONFIGURATION)) or is_factory(
        name
    ):
        yield name
    else:
        what = "is none of them" if path.exists() else "does not exist"
        raise UsageError(
            f"{printable(name)}: this {what}: expected an .onnx or .pt2 file, a config.json, a folder "
            "with such files, a .txt file with a model in each line, or package.module:factory"
        )


def _listed(name: str) -> Iterator[str]:
    """Return the models that a list names; lines that begin with # are remarks."""
    text = read_document(name, what="list", error=UsageError).decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines()]
    for line in lines:
        if line.endswith(".txt"):
            raise UsageError(
                f"{printable(name)}: a list cannot name another one: {printable(line)}"
            )
        if line and not line.startswith("#"):
            yield from _models(line)


def _models_below(folder: Path) -> Iterator[str]:
    """Return the models in a folder and below; hidden folders and links to folders are left out."""
    for place, folders, files in os.walk(folder):
        # In place, since os.walk reads from this list where to go on.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        models = sorted(name for name in files if name.endswith(_FILES))
        # Beside a model, the file describes that model.
        if not models and CONFIGURATION in files:
            models = [CONFIGURATION]
        yield from (os.path.join(place, name) for name in models)


def model_digest(model: str, settings: Mapping[str, str]) -> str:
    """Return what changes when the analysis of a model may come to another result.

    Args:
        model: As ``find_models`` returns it. The content counts of an ONNX file, size and time of change
            of its external data; of a factory its name and the file of its module, but not what
            that imports; of a configuration its content and the versions of torch and transformers.
        settings: What else the result depends on, by name.

    Returns:
        A SHA-256, as 64 hexadecimal digits.

    Raises:
        UsageError: The file cannot be read.
    """
    digest = hashlib.sha256()
    # Each with its length, or other parts could come to the same bytes.
    for part in (*_parts(model), *(f"{name}={settings[name]}" for name in sorted(settings))):
        content = part.encode("utf-8", "surrogateescape")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _parts(model: str) -> Iterator[str]:
    """Return texts that say what a model is."""
    # Another torch may export another graph of the same module.
    if is_torch_model(model):
        yield f"torch {installed_version('torch')}"
    if is_factory(model):
        yield model
        source = _source_file(model)
        yield "" if source is None else _file_digest(str(source))
        return
    if is_configuration(model):
        yield f"transformers {installed_version('transformers')}"
        yield _file_digest(str(configuration_file(model)))
        return
    yield _file_digest(model)
    if not model.endswith(_ARCHIVE):
        yield from _external_files(Path(model))


def _file_digest(path: str) -> str:
    with open_regular(path, error=UsageError) as file:
        digest = hashlib.sha256()
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _source_file(factory: str) -> Path | None:
    """Return the file of a factory's module, without importing any of it; None if none is found."""
    place = Path(*factory.rpartition(":")[0].split("."))
    for folder in (os.getcwd(), *sys.path):
        for file in (Path(folder, place.with_suffix(".py")), Path(folder, place, "__init__.py")):
            if file.is_file():
                return file
    return None


def _external_files(path: Path) -> Iterator[str]:
    """Return name, size and time of change of every file that an ONNX model keeps weights in."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load_model(path, load_external_data=False)
    except (DecodeError, OSError, ValueError):
        return  # the analysis says what is wrong with it
    locations = {
        entry.value
        for tensor in _tensors(model.graph)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    # Their content may be many gigabytes, and takes longer to read than the analysis.
    for location in sorted(locations):
        try:
            status = os.stat(path.parent / location)
        except (OSError, ValueError):
            # The analysis says that it is missing; once it is there, the digest is another one.
            yield location
        else:
            yield f"{location} {status.st_size} {status.st_mtime_ns}"


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Return all tensors of a graph and of the graphs inside its nodes."""
    waiting: list[onnx.GraphProto] = [graph]
    while waiting:
        each = waiting.pop()
        yield from each.initializer
        attributes: Sequence[onnx.AttributeProto] = [
            attribute for node in each.node for attribute in node.attribute
        ]
        for attribute in attributes:
            yield from (attribute.t, *attribute.tensors)
            waiting += [attribute.g] if attribute.HasField("g") else []
            waiting += attribute.graphs
