"""Run an original model in a child process, on given inputs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

from samba_onnx.safety.exchange import read_arrays, write_arrays
from samba_onnx.safety.files import printable
from samba_onnx.safety.leftovers import temporary_folder
from samba_onnx.safety.sandbox import memory_for_a_child, run_child

if TYPE_CHECKING:
    import onnx

__all__ = ["SampleRun", "run_sample"]

TASK: Final = "samba_onnx.runtime.engine.onnxruntime.child_sample:sample"
"""What the child does."""


@dataclass(frozen=True)
class SampleRun:
    """What trial runs gave."""

    outputs: tuple[dict[str, npt.NDArray[Any]], ...]
    """For each run arrays by output name, in the model's order; empty when the model was not
    sampled."""
    wide: tuple[dict[str, npt.NDArray[Any]], ...]
    """For each run what the model answers in float32 without rounding; empty where it has no numbers of
    16 bits and quantises nothing, or onnxruntime cannot compute it so."""
    not_sampled: str
    """Why there are no outputs: a value that is no tensor, an operator that onnxruntime lacks, an
    index out of range on random inputs; empty when there are outputs."""
    others: tuple[dict[str, npt.NDArray[Any]], ...] = ()
    """What the first run answers where its inputs move by a unit of their last place; empty where none can."""


def run_sample(
    model: str | os.PathLike[str] | onnx.ModelProto,
    inputs: Sequence[Mapping[str, npt.NDArray[Any]]],
    *,
    outputs: Sequence[str] | None = None,
    wide: bool = False,
    seconds: float = 60.0,
    memory_bytes: int | None = None,
    threads: int | None = None,
    custom_ops: Sequence[str] = (),
) -> SampleRun:
    """Run a model with onnxruntime in a child process.

    Args:
        model: A path, or a model without external data.
        inputs: For each run, one after the other, arrays by input name; strings as arrays of
            objects.
        outputs: Names of the outputs wanted; None for all.
        wide: Whether to run it in float32, too, if it has numbers of 16 bits or quantises.
        seconds: Wall-clock time after which all runs are given up.
        memory_bytes: Memory that they may take; None for most of what is available now.
        threads: Threads within one operator; None for onnxruntime's choice.
        custom_ops: Absolute paths of libraries with operators of custom domains.

    Returns:
        The outputs, or the reason why the model could not be sampled although nothing is wrong.

    Raises:
        ModelLimitError: The runs take too much time or memory.
        ExecutionError: onnxruntime died of the model, or refused it as wrong.
    """
    names = None if outputs is None else list(outputs)
    settings = {"names": names, "wide": wide, "threads": threads, "custom_ops": list(custom_ops)}
    with temporary_folder("sample") as name:
        folder = Path(name)
        path, shown = _model_file(model, folder)
        if path is None:
            return SampleRun((), (), "a model of more than 2 GB can be sampled from a file only")
        answer = run_child(
            TASK,
            {"model": str(path), "outputs": str(folder), **_written(inputs, folder), **settings},
            seconds=seconds,
            memory_bytes=memory_for_a_child() if memory_bytes is None else memory_bytes,
            doing=f"{printable(shown)}: running it with onnxruntime on sample inputs",
        )
        return _answered(answer, folder)


def _model_file(
    model: str | os.PathLike[str] | onnx.ModelProto, folder: Path
) -> tuple[Path | None, str]:
    """Return the file of a model, and what messages call it; None for a model that no file can hold."""
    if isinstance(model, str | os.PathLike):
        return Path(model).absolute(), os.fspath(model)
    # A model in memory has no file, and the child is given paths only.
    path, shown = folder / "model.onnx", model.graph.name or "model"
    try:
        path.write_bytes(model.SerializeToString())
    # protobuf cannot write more than 2 GB.
    except ValueError:
        return None, shown
    return path, shown


def _written(
    inputs: Sequence[Mapping[str, npt.NDArray[Any]]], folder: Path
) -> dict[str, list[Any]]:
    """Write the inputs of each run to a file, and return what the child must know to read them."""
    files = [folder / f"{number}.safetensors" for number in range(len(inputs))]
    records = [write_arrays(file, arrays) for file, arrays in zip(files, inputs, strict=True)]
    return {"inputs": [str(file) for file in files], "records": records}


def _answered(answer: Mapping[str, Any], folder: Path) -> SampleRun:
    # Nothing is wrong with a model that random inputs do not fit.
    if "not_sampled" in answer:
        return SampleRun((), (), printable(answer["not_sampled"], 400))
    outputs, wide, others = (
        tuple(
            read_arrays(folder / f"{kind}.{number}.safetensors", records)
            for number, records in enumerate(answer[kind])
        )
        for kind in ("outputs", "wide", "others")
    )
    return SampleRun(outputs, wide, "", others)
