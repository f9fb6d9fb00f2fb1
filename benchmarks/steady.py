"""Steady inference: the PEF on the emulator against one onnxruntime session on the original.

Each side runs in a process of its own, so that two spinning thread pools never share one; the
processes take turns, and the ratio is taken turn by turn.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import samba_onnx
from benchmarks.table import Row, geometric_mean
from models.cache import cached_onnx

MODELS = ("resnet50", "bert", "gpt2", "vit", "whisper_decoder", "mobilenet_v3", "lstm")

WORKER = """
import sys, time, numpy as np
side, path, inputs = sys.argv[1:4]
feeds = dict(np.load(inputs))
if side == "original":
    import onnxruntime
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    run = lambda: session.run(None, feeds)
else:
    import samba_onnx
    device = samba_onnx.Device(samba_onnx.load_pef(path))
    run = lambda: device.run(feeds)
for _ in range(3):
    run()
print("ready", flush=True)
for line in sys.stdin:
    begin = time.perf_counter()
    for _ in range(int(line)):
        run()
    print(time.perf_counter() - begin, flush=True)
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
        ratio, milliseconds = _ratio(name, folder, turns, turn_seconds)
        ratios.append(ratio)
        note = f"({milliseconds:.1f} ms per run on the original)"
        yield Row(f"steady inference: {name}", "onnxruntime", ratio, 1.05, note)
    yield Row("steady inference: geometric mean", "onnxruntime", geometric_mean(ratios), 1.0)


def _ratio(name: str, folder: Path, turns: int, turn_seconds: float) -> tuple[float, float]:
    import numpy as np

    from samba_onnx.verification import seeded_inputs

    model = cached_onnx(name, "full")
    with samba_onnx.convert(model, folder / f"{name}.pef", sample=False) as pef:
        inputs = folder / f"{name}.npz"
        np.savez(inputs, **seeded_inputs(pef, seed=0))
        path = pef.path
    with _Worker("pef", path, inputs) as ours, _Worker("original", model, inputs) as theirs:
        runs = max(1, round(turn_seconds / theirs.time(1)))
        pairs = [(ours.time(runs), theirs.time(runs)) for _ in range(turns)]
    milliseconds = 1e3 * statistics.median(theirs for _, theirs in pairs) / runs
    return statistics.median(ours / theirs for ours, theirs in pairs), milliseconds


class _Worker:
    """One side of the comparison, waiting for its turn."""

    def __init__(self, side: str, path: Path, inputs: Path) -> None:
        command = [sys.executable, "-c", WORKER, side, str(path), str(inputs)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker died with {self._process.wait()}")
        return line

    def time(self, runs: int) -> float:
        """Return the seconds that ``runs`` runs take."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{runs}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
