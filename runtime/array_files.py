"""Arrays from files and into files: ``.npy``, ``.npz`` and ``.json``; nothing is ever unpickled."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from samba_onnx.errors import UsageError
from samba_onnx.pef.fixed_inputs import FixedInput, fixed_arrays
from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.inputs import InputSpec, fits, without_fixed
from samba_onnx.safety.array_files import array_archive, array_shapes, read_npy
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
                # An archive may hold what another option names: which one is meant cannot be told.
                raise UsageError(f"--input {text}: input {each!r} is given twice")
            values[each] = known[each].check(_reinterpreted(array, known[each]))
    return dict(without_fixed(fixed_arrays(fixed), values))


def _symbol(fixed: FixedInput) -> Symbol:
    return Symbol(fixed.name, SymbolKind.INPUT, fixed.type, fixed.shape)


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
    # Read from the headers: no array is unpacked before it is known which one is wanted.
    names = array_shapes(path)
    if spec.name not in names and len(names) != 1:
        raise UsageError(f"{path} holds {', '.join(names) or 'nothing'}, but no {spec.name!r}")
    wanted = spec.name if spec.name in names else next(iter(names))
    return _read_all(path, {wanted: spec}, others=True)[wanted]


def _suffix(path: str) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(f"{printable(path)}: expected one of {', '.join(FORMATS)}")
    return suffix


def _read_all(
    path: str, specs: Mapping[str, InputSpec], *, others: bool = False
) -> dict[str, Array]:
    """Read the arrays of an ``.npz`` that inputs take.

    A small file may hold any number of arrays of any size, compressed: what no input takes is not read.
    """
    arrays = {}
    with array_archive(path) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in specs:
                with archive.open(info) as member:
                    place = f"{path}: {info.filename}"
                    arrays[name] = _read_npy(member, place, specs[name], info.file_size)
            elif not others:
                raise UsageError(f"{path} holds {name!r}, which is {_no_input(specs)}")
    return arrays


def _read_npy(file: IO[bytes], path: str, spec: InputSpec, size: int | None = None) -> Array:
    """Read an array that an input takes."""

    def check(shape: tuple[int, ...]) -> None:
        if spec.dtype is not None and not fits(shape, spec.shape):
            # Its words, for an array of this shape that takes no memory.
            spec.check(np.broadcast_to(np.zeros((), spec.dtype), shape))

    return read_npy(file, path, size=size, check=check)


def _read_json(path: str, spec: InputSpec) -> Any:
    """Read nested lists; the input says which type the numbers have."""
    with open_regular(path, what="input", error=UsageError) as file:
        # One byte more than allowed tells a file that is too large, without reading all of it.
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
    # No .json: its numbers have no type, which only an input that reads them can give.
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
    # Everything is flat before the file is opened: a wrong suffix leaves no file behind.
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
