"""What the command line costs before it does anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import samba_onnx
from benchmarks.convert import samba_port
from benchmarks.processes import measure, python
from benchmarks.table import Row
from models.cache import cached_onnx
from models.example import Variant

_SMALL: tuple[str, Variant] = ("gpt2", "full")
_LARGE: tuple[str, Variant] = ("llama", "large")


def rows(folder: Path, *, quick: bool = False) -> Iterator[Row]:
    """Yield CPU time of ``samba-port --help`` and ``samba-port inspect``.

    Args:
        folder: Where a PEF may be written.
        quick: Inspect the PEF of GPT-2 instead of the model over 2 GB.

    Yields:
        Both against ``python -c "import onnx"``; inspecting states its wall time too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base = measure(python("import onnx"), repeat=9)
    shown = measure([samba_port(), "--help"], repeat=9)
    yield Row("CPU time of --help", "import onnx", shown.cpu_seconds / base.cpu_seconds, 1.0)
    name, variant = _SMALL if quick else _LARGE
    path = folder / f"{name}.pef"
    samba_onnx.convert(cached_onnx(name, variant), path, sample=False).close()
    inspected = measure([samba_port(), "inspect", str(path)], repeat=5)
    note = f"({inspected.wall_seconds:.2f} s wall; aim 0.5 s)"
    ratio = inspected.cpu_seconds / base.cpu_seconds
    yield Row(f"CPU time of inspect, {name}", "import onnx", ratio, None, note)
