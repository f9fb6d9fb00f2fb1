"""Steady inference: the PEF on the emulator against one onnxruntime session on the original.

The sides take turns, and the ratio is taken turn by turn.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import samba_onnx
from benchmarks.machine import machine
from benchmarks.table import Row, geometric_mean
from benchmarks.turns import Side, ratio
from benchmarks.work import work
from models.cache import cached_onnx

MODELS = ("resnet50", "bert", "gpt2", "vit", "whisper_decoder", "mobilenet_v3", "lstm")

WORKER = """
import sys, numpy as np
from benchmarks.turns import serve

side, path, inputs = sys.argv[1:4]
feeds = dict(np.load(inputs))

def prepare():
    if side == "original":
        import onnxruntime
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, feeds)
    import samba_onnx
    device = samba_onnx.Device(samba_onnx.load_pef(path))
    return lambda: device.run(feeds)

serve(prepare)
"""


def rows(folder: Path, *, turns: int = 15, turn_seconds: float = 0.4) -> Iterator[Row]:
    """Yield the ratio of time per run for each model, and their geometric mean.

    Args:
        folder: Where PEFs may be written.
        turns: How often the two sides take turns.
        turn_seconds: About how long one turn lasts.

    Yields:
        One row per model, then the mean.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ratios = []
    for name in MODELS:
        value, seconds = _ratio(name, folder, turns, turn_seconds)
        ratios.append(value)
        note = f"({1e3 * seconds:.1f} ms per run on the original)"
        # Both sides have all cores, and a batch of one.
        limit = work("forward", name, "1").seconds(machine(os.cpu_count() or 1))
        what = f"steady inference: {name}"
        yield Row(what, "onnxruntime", value, 1.05, note, seconds, limit)
    yield Row("steady inference: geometric mean", "onnxruntime", geometric_mean(ratios), 1.0)


def _ratio(name: str, folder: Path, turns: int, turn_seconds: float) -> tuple[float, float]:
    import numpy as np

    from samba_onnx.comparing.sample_inputs import input_specs, pef_ranges, random_inputs

    model = cached_onnx(name, "full")
    with samba_onnx.convert(model, folder / f"{name}.pef", sample=False) as pef:
        inputs = folder / f"{name}.npz"
        arrays: dict[str, Any] = random_inputs(input_specs(pef), 0, pef_ranges(pef))
        np.savez(inputs, **arrays)
        files = {"pef": pef.path, "original": model}
    commands = [["-c", WORKER, side, str(file), str(inputs)] for side, file in files.items()]
    with Side(commands[0]) as ours, Side(commands[1]) as theirs:
        value, seconds = ratio(ours, theirs, turns, turn_seconds)
    return value, seconds
