"""Arrays from files and into files: ``.npy``, ``.npz`` and ``.json``; nothing is ever unpickled."""

from __future__ import annotations

import contextlib
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from samba_onnx.errors import ModelLimitError, SambaError, UsageError
from samba_onnx.pef.fixed_inputs import FixedInput, fixed_arrays
from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.inputs import InputSpec, fits, without_fixed
from samba_onnx.safety.archives import open_archive
from samba_onnx.safety.files import atomic_output, open_regular, printable

Array = npt.NDArray[Any]

FORMATS = (".npy", ".npz", ".json")
MAX_JSON_BYTES = 64_000_000
"""Larger arrays belong in ``.npy``."""


def read_inputs(
    texts: Sequence[str], specs: Mapping[str, InputSpec], fixed: Sequence[FixedInput] = ()
) -> dict[str, Any]:
    """Read ``--input`` options.

    Args:
        texts: ``NAME=FILE``, or ``FILE.npz`` for all arrays in it.
        specs: What each input must look like, by name.
        fixed: Inputs that the PEF has as constants. They need not be given, and may have no other value.

    Returns:
        Arrays by input name, checked, without those of fixed inputs.

    Raises:
        UsageError: An option or file cannot be used, or an input is given twice.
        InputError: An array does not fit its input, or is not the constant that the input was fixed to.
    """
    values: dict[str, Any] = {}
    # Those that are fixed may be given as well: programs that run the original have them.
    known = {**specs, **{one.name: InputSpec(_symbol(one)) for one in fixed}}
    for text in texts:
        name, path = _split(text, known)
        arrays = _read_all(path, known) if name is None else {name: _read_one(path, known[name])}
        for each, array in arrays.items():
            if each in values:
                raise UsageError(f"--input {text}: input {each!r} is given twice")
            values[each] = known[each].check(_reinterpreted(array, known[each]))
    return dict(without_fixed(fixed_arrays(fixed), values))


def _symbol(fixed: FixedInput) -> Symbol:
    return Symbol(fixed.name, SymbolKind.INPUT, fixed.type, fixed.shape)


def read_array(path: str) -> Array:
    """Read the array of an ``.npy`` file.

    Args:
        path: The file.

    Raises:
        UsageError: It cannot be used.
    """
    with open_regular(path, what="constant", error=UsageError) as file:
        return _read_npy(file, path)


def read_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read the shapes of ``--sample-input`` options.

    Args:
        texts: ``INPUT=FILE``; ``FILE.npy`` for the only input; or ``FILE.npz``, which names its arrays.

    Returns:
        Shapes by input name; an empty name for the only input.

    Raises:
        UsageError: A file cannot be used, or an input is given twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, path = text.rpartition("=")
        if Path(text).exists():  # its name may hold "="
            name, equals, path = "", "", text
        suffix = Path(path).suffix.lower()
        if suffix not in {".npy", ".npz"} or (equals and not name):
            raise UsageError(
                f"--sample-input {text}: expected INPUT=FILE.npy, FILE.npy for a model with one input, "
                "or FILE.npz with arrays by input"
            )
        if suffix == ".npz":
            found = _shapes(path)
            if name:
                only = found.get(name, next(iter(found.values())) if len(found) == 1 else None)
                found = {} if only is None else {name: only}
        else:
            with open_regular(path, what="input", error=UsageError) as file:
                found = {name: _npy_header(file, path).shape}
        if not found or set(found) & set(shapes):
            twice = "is given twice" if found else f"has no array {name!r}"
            raise UsageError(f"--sample-input {text}: {next(iter(found), path)!r} {twice}")
        shapes |= found
    return shapes


def _split(text: str, specs: Mapping[str, InputSpec]) -> tuple[str | None, str]:
    """Split ``NAME=FILE``; the longest name wins, because names may hold ``=``."""
    names = [name for name in specs if text.startswith(f"{name}=")]
    if names:
        name = max(names, key=len)
        return name, text[len(name) + 1 :]
    if text.endswith(".npz") and ("=" not in text or Path(text).exists()):
        return None, text
    if "=" not in text:
        raise UsageError(f"--input {text}: expected NAME=FILE, or an .npz with all inputs")
    raise UsageError(f"--input {text}: {text.partition('=')[0]!r} is {_no_input(specs)}")


def _no_input(specs: Mapping[str, InputSpec]) -> str:
    known = ", ".join(f"{name} {spec}" for name, spec in specs.items()) or "none"
    return f"no input of the model; its inputs are: {known}"


def _read_one(path: str, spec: InputSpec) -> Any:
    """Read the array for one input."""
    suffix = _suffix(path)
    if suffix == ".json":
        return _read_json(path, spec)
    if suffix == ".npy":
        with open_regular(path, what="input", error=UsageError) as file:
            return _read_npy(file, path, spec)
    names = _shapes(path)
    if spec.name not in names and len(names) != 1:
        raise UsageError(f"{path} holds {', '.join(names) or 'nothing'}, but no {spec.name!r}")
    wanted = spec.name if spec.name in names else next(iter(names))
    return _read_all(path, {wanted: spec}, others=True)[wanted]


def _suffix(path: str) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(f"{printable(path)}: expected one of {', '.join(FORMATS)}")
    return suffix


@contextlib.contextmanager
def _archive(path: str) -> Iterator[zipfile.ZipFile]:
    """Open an ``.npz``; what is wrong with it is the user's to mend."""
    name = printable(path)
    try:
        with (
            open_regular(path, what="input", error=UsageError) as file,
            open_archive(file, name) as archive,
        ):
            yield archive
    except ModelLimitError as error:
        raise UsageError(str(error)) from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        if isinstance(error, SambaError):
            raise
        raise UsageError(f"{name}: not a usable .npz: {error}") from None


def _shapes(path: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays of an ``.npz``, whose content is not read."""
    shapes = {}
    with _archive(path) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:
                header = _npy_header(member, f"{path}: {info.filename}", info.file_size)
                shapes[info.filename.removesuffix(".npy")] = header.shape
    return shapes


def _read_all(
    path: str, specs: Mapping[str, InputSpec], *, others: bool = False
) -> dict[str, Array]:
    """Read the arrays of an ``.npz`` that inputs take.

    A small file may hold any number of arrays of any size, compressed: what no input takes is not read.
    """
    arrays = {}
    with _archive(path) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in specs:
                with archive.open(info) as member:
                    place = f"{path}: {info.filename}"
                    arrays[name] = _read_npy(member, place, specs[name], info.file_size)
            elif not others:
                raise UsageError(f"{path} holds {name!r}, which is {_no_input(specs)}")
    return arrays


@dataclass(frozen=True)
class _Header:
    """What stands before the numbers of an array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """How many bytes the numbers take."""
        return math.prod(self.shape) * self.dtype.itemsize


def _read_npy(
    file: IO[bytes], path: str, spec: InputSpec | None = None, size: int | None = None
) -> Array:
    """Read an array whose header is checked before memory is taken for it."""
    header = _npy_header(file, path, size)
    if spec is not None and spec.dtype is not None and not fits(header.shape, spec.shape):
        # Its words, for an array of this shape that takes no memory.
        spec.check(np.broadcast_to(np.zeros((), spec.dtype), header.shape))
    try:
        content = (
            np.frombuffer(_exactly(file, header.bytes), header.dtype)
            if header.bytes
            else np.empty(0, header.dtype)
        )
        return content.reshape(header.shape, order="F" if header.fortran else "C")
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{printable(path)}: not a usable .npy array: {error}") from None


def _npy_header(file: IO[bytes], path: str, size: int | None = None) -> _Header:
    """Read a header; the file is at the array's first byte then.

    Args:
        file: Open at its first byte.
        path: What it is called in messages.
        size: Bytes of all of it; None to look.
    """
    try:
        if size is None:
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
        version = np.lib.format.read_magic(file)
        # The third version has names of fields in Unicode, and no input has fields.
        if version not in ((1, 0), (2, 0)):
            raise UsageError(
                f"{printable(path)}: not a usable .npy array: version {version} of the format is not "
                "known"
            )
        read = np.lib.format.read_array_header_1_0
        header = _Header(
            *(read if version == (1, 0) else np.lib.format.read_array_header_2_0)(file)
        )
    except (ValueError, TypeError, EOFError, SyntaxError, zipfile.BadZipFile) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{printable(path)}: not a usable .npy array: {error}") from None
    if header.dtype.hasobject:
        raise UsageError(f"{printable(path)}: holds Python objects, which are never unpickled")
    # Before memory is taken for it: a header of some bytes may promise terabytes.
    if header.bytes > size:
        raise UsageError(f"{printable(path)}: truncated: its header promises {header.bytes} bytes")
    return header


def _exactly(file: IO[bytes], size: int) -> bytes:
    content = file.read(size)
    if len(content) != size:
        raise ValueError(f"truncated: {len(content)} of {size} bytes")
    return content


def _read_json(path: str, spec: InputSpec) -> Any:
    """Read nested lists; the input says which type the numbers have."""
    with open_regular(path, what="input", error=UsageError) as file:
        text = file.read(MAX_JSON_BYTES + 1)
    if len(text) > MAX_JSON_BYTES:
        raise UsageError(f"{printable(path)}: larger than {MAX_JSON_BYTES} bytes; use .npy")
    if spec.dtype is None:
        raise UsageError(f"{printable(path)}: a JSON file cannot hold {spec}")
    try:
        return np.asarray(json.loads(text), dtype=spec.dtype)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{printable(path)}: not an array as JSON: {error}") from None


def _reinterpreted(array: Any, spec: InputSpec) -> Any:
    """Give raw items their type back: ``.npy`` has no name for bfloat16 and its like."""
    raw = isinstance(array, np.ndarray) and array.dtype.kind == "V" and not array.dtype.names
    if raw and spec.dtype is not None and array.dtype.itemsize == spec.dtype.itemsize:
        return array.view(spec.dtype)
    return array


def check_output_path(path: str, outputs: Sequence[str]) -> None:
    """Refuse a file that could not hold the outputs, before anything runs.

    Args:
        path: The file or folder that ``--output`` names.
        outputs: Names of the outputs.

    Raises:
        UsageError: Its suffix is unknown, or ``.npy`` with more than one output.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in {".npy", ".npz"}:
        raise UsageError(f"--output {path}: expected .npz, or .npy for a single output")
    if suffix == ".npy" and len(outputs) != 1:
        raise UsageError(f"--output {path}: the model has {len(outputs)} outputs; use .npz")


def write_outputs(path: str, outputs: Mapping[str, Any]) -> None:
    """Write outputs into an ``.npz``, or the only one into an ``.npy``; in whole or not at all.

    Args:
        path: Where to.
        outputs: Values by name; elements of a sequence become ``name[0]``, ``name[1]``, ...

    Raises:
        OutputError: The file cannot be written.
        UsageError: ``.npy`` for more than one array.
    """
    arrays = dict(leaf for name, value in outputs.items() for leaf in _leaves(name, value))
    single = Path(path).suffix.lower() == ".npy"
    if single and len(arrays) != 1:
        raise UsageError(f"--output {path}: there are {len(arrays)} arrays; use .npz")
    with atomic_output(path) as file:
        if single:
            _write_npy(file, next(iter(arrays.values())))
            return
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                # Its size is not known before it is written, and may be beyond 4 GB.
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    _write_npy(member, array)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(f"{name}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{name}[{key!r}]", item)
    elif value is not None:
        yield name, np.asarray(value)


def _write_npy(file: IO[bytes], array: Array) -> None:
    # Texts. Other objects could be stored as pickles only.
    if array.dtype == object:
        array = array.astype(str)
    np.lib.format.write_array(file, array, allow_pickle=False)
