"""The modelled scaling of training steps, held against the emulator and against published steps.

The emulator runs on this machine's processors and its loopback, which no target describes: compared are the
direction in which a second replica moves a step, and the order of the modes. Its programs have a section for
each operator, so that there is something to overlap. Published are steps of BERT-Large on 4 and 16 instances.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.data_parallel_worker import ALONE, MODES
from benchmarks.fidelity_programs import planned
from benchmarks.published import published_row
from benchmarks.table import Row
from benchmarks.turns import Side, restarted_ratios
from samba_onnx.pef import load_pef
from samba_onnx.pef.manifest import Manifest
from samba_onnx.runtime.reducing import ReductionMode
from samba_onnx.tools.plan.step_model import StepModel

MODEL = "gpt2_small"
FEW, MANY = "sn30/bert/4", "sn30/bert/16"
_WORDS = {ALONE: "1 replica", **{mode: f"2 replicas, {mode}" for mode in MODES}}
CLOSE = 0.03
"""How far the modelled ratio of the published steps may be from the published one."""


def rows(folder: Path, *, quick: bool = False, turns: int = 9) -> Iterator[Row]:
    """Yield measured ratios with the modelled ones, and modelled ratios with published ones.

    Args:
        folder: Where PEFs may be written.
        quick: Leave the published steps out.
        turns: How often sides take turns.

    Yields:
        Two replicas against one; every mode against the one that does not overlap, which is a control
        of itself; and sixteen instances against four.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pef = folder / f"{MODEL}.pef"
    for mode, baseline in ((MODES[0], ALONE), *((mode, MODES[0]) for mode in MODES)):
        ours, theirs = partial(_side, mode, pef), partial(_side, baseline, pef)
        measured = statistics.quantiles(restarted_ratios(ours, theirs, 2 * turns), n=4)
        modelled = _modelled(pef)
        model = modelled[mode] / modelled[baseline]
        yield _row(_WORDS[mode], _WORDS[baseline], measured, model)
    if not quick:
        yield _published()


def _side(mode: str, pef: Path) -> Side:
    return Side(["-m", "benchmarks.data_parallel_worker", f"{mode}:o0", MODEL, str(pef)])


def _modelled(pef: Path) -> Mapping[str, float]:
    """Return the modelled seconds of one replica and of two in every mode."""
    with load_pef(pef) as opened:
        model = _model(opened.manifest)
    alone = model.step(1, ReductionMode.NORMAL).seconds
    return {ALONE: alone, **{mode: model.step(2, ReductionMode(mode)).seconds for mode in MODES}}


def _model(manifest: Manifest) -> StepModel:
    return StepModel(manifest, manifest.graphs[0])


def _row(what: str, baseline: str, measured: Sequence[float], modelled: float) -> Row:
    low, middle, high = measured
    note = f"(the middle half: {low:.3g} to {high:.3g}; modelled {modelled:.4g}x)"
    return Row(f"step of the emulator at o0, {MODEL}: {what}", baseline, middle, None, note)


def _published() -> Row:
    """Return how far the modelled step of 16 instances is from the published one, in those of 4."""
    few, many = published_row(FEW), published_row(MANY)
    model = _model(planned(few).manifest)
    steps = [model.step(row.replicas, ReductionMode.NORMAL).seconds for row in (few, many)]
    modelled, published = steps[1] / steps[0], many.value / few.value
    note = f"(modelled {modelled:.4f}, published {published:.4f}; one within {CLOSE:.0%} is met)"
    error = abs(modelled / published - 1)
    return Row("BERT-Large, 16 instances against 4: error", "published", error, CLOSE, note)
