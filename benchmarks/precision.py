"""What computing in bfloat16 costs the emulator: the same model in bfloat16 against float32.

Both sides are this product's, in processes that take turns; CPU time of one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import samba_onnx
from benchmarks.table import Row
from benchmarks.turns import Side, ratio
from models.cache import cached_onnx

NARROW = ("bf16", "mixed")

WORKER = """
import sys, numpy as np
from benchmarks.turns import serve

def prepare():
    import samba_onnx
    device = samba_onnx.Device(samba_onnx.load_pef(sys.argv[1]), threads=1)
    feeds = {"input_ids": np.random.default_rng(0).integers(0, 50257, (1, 64))}
    return lambda: device.run(feeds)

serve(prepare)
"""


def rows(folder: Path, *, quick: bool = False, turns: int = 9) -> Iterator[Row]:
    """Yield the ratio of time per run of GPT-2, and unless ``quick`` of a training step.

    Args:
        folder: Where PEFs may be written.
        quick: Leave out training.
        turns: How often the two sides take turns.

    Yields:
        One row per precision and kind of run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    commands = {}
    for precision in ("fp32", *NARROW):
        path = folder / f"gpt2_{precision}.pef"
        model = cached_onnx("gpt2", "full")
        samba_onnx.convert(model, path, sample=False, precision=precision).close()
        commands[precision] = ["-c", WORKER, str(path)]
    yield from _ratios("inference: gpt2", commands, turns)
    if quick:
        return
    module = ["-m", "benchmarks.training_worker", "ours", "gpt2_small", "1"]
    commands = {
        precision: [*module, str(folder / f"train_{precision}.pef"), precision]
        for precision in ("fp32", *NARROW)
    }
    yield from _ratios("training: gpt2_small", commands, turns)


def _ratios(what: str, commands: dict[str, list[str]], turns: int) -> Iterator[Row]:
    for precision in NARROW:
        with (
            Side(commands[precision], processor_time=True) as narrow,
            Side(commands["fp32"], processor_time=True) as wide,
        ):
            value, seconds = ratio(narrow, wide, turns)
        note = f"({1e3 * seconds:.1f} ms in fp32)"
        yield Row(f"{what} in {precision}", "the same in fp32", value, 1.5, note)
