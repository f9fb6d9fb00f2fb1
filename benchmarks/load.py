"""Loading a PEF against creating an onnxruntime session on the original, in fresh processes."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

import samba_onnx
from benchmarks.processes import python
from benchmarks.table import Row
from models.cache import cached_onnx
from models.example import Variant

AIMS: tuple[tuple[str, Variant, float], ...] = (("gpt2", "full", 0.3), ("llama", "large", 0.1))

SESSION = """
import sys, time, onnxruntime
begin = time.perf_counter()
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
print(time.perf_counter() - begin)
"""
DEVICE = """
import sys, time, onnxruntime, samba_onnx, samba_onnx.runtime.device
begin = time.perf_counter()
device = samba_onnx.Device(samba_onnx.load_pef(sys.argv[1]), prepack=False)
print(time.perf_counter() - begin)
"""


def rows(folder: Path, *, quick: bool = False, repeat: int = 5) -> Iterator[Row]:
    """Yield the ratio of load times for each model.

    Args:
        folder: Where PEFs may be written.
        quick: Leave out the model over 2 GB.
        repeat: How many fresh processes of each side, in turn.

    Yields:
        One row per model; imports are not counted on either side.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, variant, aim in AIMS:
        if quick and variant == "large":
            continue
        model = cached_onnx(name, variant)
        with samba_onnx.convert(model, folder / f"{name}.pef", sample=False) as pef:
            path = pef.path
        pairs = [(_seconds(DEVICE, path), _seconds(SESSION, model)) for _ in range(repeat + 1)]
        ratio = statistics.median(ours / theirs for ours, theirs in pairs[1:])
        yield Row(f"load {name}, weights mapped", "onnxruntime session", ratio, aim)


def _seconds(code: str, path: Path) -> float:
    answer = subprocess.run(python(code, str(path)), capture_output=True, text=True, check=True)
    return float(answer.stdout)
