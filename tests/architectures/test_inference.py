"""Every architecture computes on the device, in another process, what it computes in torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from samba_onnx.sessions import SESSION
from tests.architectures.catalogue import ARCHITECTURES
from tests.architectures.inference import Outcome, compile_architecture, run_architecture
from tests.architectures.workers import Worker, WorkError

QUICK = [
    "bert",
    "deberta",
    "gpt2",
    "llama",
    "olmoe",
    "mamba",
    "t5",
    "whisper",
    "wav2vec2",
    "vit",
    "swin",
    "resnet",
    "convnext",
    "clip",
]
"""Of every family one or two."""

Workers = tuple[Worker, Worker]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """A process that compiles, and one that runs."""
    folder = tmp_path_factory.mktemp("pefs")
    with Worker(folder) as compiling, Worker(folder) as running:
        yield compiling, running


def _check(name: str, workers: Workers) -> None:
    compiling, running = workers
    compiled = compiling.do("compile", name)
    outcome = running.do("run", name)
    assert outcome["passed"], outcome
    assert outcome["reaction"] > 0.01, "outputs do not depend on inputs: nothing was compared"
    assert compiled["on_rdu"] > 0


@pytest.mark.filterwarnings("ignore")  # as the processes do, of what libraries say of themselves
def test_an_architecture_computes_what_torch_does_in_one_process(tmp_path: Path) -> None:
    """Two processes would import torch and transformers once more each."""
    try:
        compiled = compile_architecture(ARCHITECTURES[QUICK[0]], tmp_path)
        outcome = run_architecture(ARCHITECTURES[QUICK[0]], tmp_path)
    finally:
        SESSION.reset()
    assert outcome.passed, outcome
    assert outcome.reaction > 0.01
    assert compiled.on_rdu > 0


@pytest.mark.parametrize("name", QUICK)
def test_a_compiled_architecture_computes_what_torch_does(name: str, workers: Workers) -> None:
    _check(name, workers)


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - set(QUICK)))
def test_every_architecture_computes_what_torch_does(name: str, workers: Workers) -> None:
    if not ARCHITECTURES[name].limit:
        _check(name, workers)
        return
    with pytest.raises((WorkError, AssertionError)):
        _check(name, workers)


def test_a_wrong_result_is_noticed() -> None:
    right = Outcome(outputs=1, error=1e-6, own_error=0.0, reaction=1.0, seconds=1.0)
    assert right.passed
    assert not replace(right, error=1e-4).passed
    assert not replace(right, error=1e-4, own_error=9e-6).passed
    assert not replace(right, error=float("inf"), own_error=1e-6).passed
    assert not replace(right, error=float("nan")).passed
