"""Arrays between two processes: a safetensors file of bytes, and JSON that says what they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns bfloat16 and the small floats by name)
import numpy as np
import numpy.typing as npt
import safetensors.numpy

__all__ = ["read_arrays", "write_arrays"]


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> list[dict[str, Any]]:
    """Write arrays to a file.

    Args:
        path: The safetensors file to make.
        arrays: Arrays of any type that numpy and ml_dtypes have, or of strings.

    Returns:
        What ``read_arrays`` needs to know, able to be JSON.
    """
    content: dict[str, npt.NDArray[Any]] = {}
    records: list[dict[str, Any]] = []
    for number, (name, array) in enumerate(arrays.items()):
        record = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
        # Texts have no bytes of fixed size, which the file could hold.
        if array.dtype.kind in "OUS":
            record["strings"] = [_text(item) for item in array.reshape(-1).tolist()]
        else:
            # As bytes: safetensors knows neither all types of ml_dtypes nor the order of arrays.
            content[str(number)] = np.frombuffer(array.tobytes(), np.uint8)
        records.append(record)
    safetensors.numpy.save_file(content, path)
    return records


def read_arrays(path: Path, records: list[dict[str, Any]]) -> dict[str, npt.NDArray[Any]]:
    """Read arrays that ``write_arrays`` wrote, in the same order."""
    content = safetensors.numpy.load_file(path)
    arrays: dict[str, npt.NDArray[Any]] = {}
    for number, record in enumerate(records):
        if "strings" in record:
            flat = np.empty(len(record["strings"]), dtype=object)
            flat[:] = record["strings"]
        else:
            flat = content[str(number)].view(np.dtype(record["dtype"]))
        arrays[record["name"]] = flat.reshape(record["shape"])
    return arrays


def _text(item: object) -> str:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
