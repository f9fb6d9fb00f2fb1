"""Conversion against onnxsim, onnxslim and onnxscript.optimizer on the same file."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes import Usage, measure, python
from benchmarks.table import Row
from models.cache import cached_onnx
from models.example import Variant

SIZES: tuple[tuple[str, Variant], ...] = (("gpt2", "full"), ("bert", "full"), ("llama", "large"))

ONNXSIM = """
import sys, onnx, onnxsim
simplified, _ = onnxsim.simplify(onnx.load(sys.argv[1]))
onnx.save(simplified, sys.argv[2], save_as_external_data=True, location="weights.bin")
"""
ONNXSLIM = """
import sys, onnx, onnxslim
slim = onnxslim.slim(sys.argv[1])
onnx.save(slim, sys.argv[2], save_as_external_data=True, location="weights.bin")
"""
ONNXSCRIPT = """
import sys, onnx_ir, onnxscript.optimizer
model = onnx_ir.load(sys.argv[1])
onnxscript.optimizer.optimize(model)
onnx_ir.save(model, sys.argv[2], external_data="weights.bin")
"""
BASELINES = {"onnxsim": ONNXSIM, "onnxslim": ONNXSLIM, "onnxscript.optimizer": ONNXSCRIPT}
IMPORTS = {
    "samba-port": "import samba_onnx.compiling.compiler",
    "onnxsim": "import onnx, onnxsim",
    "onnxslim": "import onnx, onnxslim",
    "onnxscript.optimizer": "import onnx_ir, onnxscript.optimizer",
}


def samba_port() -> str:
    """Return the path of the ``samba-port`` that belongs to this interpreter."""
    return str(Path(sys.executable).with_name("samba-port"))


def rows(folder: Path, *, quick: bool = False) -> Iterator[Row]:
    """Yield CPU time and peak memory of converting, as ratios to each baseline.

    Args:
        folder: Where outputs may be written; emptied after each tool.
        quick: Leave out the model over 2 GB.

    Yields:
        Two rows per model and baseline, one on peak memory against the model's size.
    """
    own = {name: measure(python(code)).peak_bytes for name, code in IMPORTS.items()}
    for name, variant in SIZES:
        if quick and variant == "large":
            continue
        model = cached_onnx(name, variant)
        size = sum(file.stat().st_size for file in model.parent.iterdir())
        output = folder / "model.pef"
        ours = _measure([samba_port(), "convert", str(model), "-o", str(output), "-q"], folder)
        label = f"convert {name} ({size / 1e9:.2f} GB)"
        beyond = ours.peak_bytes - own["samba-port"]
        memory_aim = 0.10 if variant == "large" else None
        yield Row(f"{label}: peak memory", "model size", beyond / size, memory_aim)
        for baseline, code in BASELINES.items():
            aim = 0.1 if variant == "large" and baseline in ("onnxsim", "onnxslim") else None
            try:
                theirs = _measure(python(code, str(model), str(folder / "out.onnx")), folder)
            except RuntimeError as error:
                yield Row(f"{label}: CPU time", baseline, None, aim, str(error))
                continue
            yield Row(f"{label}: CPU time", baseline, ours.cpu_seconds / theirs.cpu_seconds, aim)
            ratio = beyond / max(theirs.peak_bytes - own[baseline], 1)
            yield Row(f"{label}: peak memory", baseline, ratio)


def _measure(command: list[str], folder: Path) -> Usage:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return measure(command)
