"""Every architecture with labels learns on the device what it learns in torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from samba_onnx.sessions import SESSION
from tests.architectures.catalogue import ARCHITECTURES
from tests.architectures.training import Trained, train_architecture
from tests.architectures.workers import Worker, WorkError

QUICK = ["bert", "gpt2", "olmoe", "t5", "wav2vec2", "resnet"]
"""Of every family one."""

_TRAINED = {name for name, one in ARCHITECTURES.items() if not (one.trains or one.limit)}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A process that trains."""
    with Worker(tmp_path_factory.mktemp("pefs")) as training:
        yield training


def _check(name: str, worker: Worker) -> None:
    trained = worker.do("train", name)
    assert trained["passed"], trained


@pytest.mark.parametrize("name", QUICK)
def test_five_steps_are_those_of_torch(name: str, worker: Worker) -> None:
    _check(name, worker)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(_TRAINED - set(QUICK)))
def test_five_steps_of_every_architecture_are_those_of_torch(name: str, worker: Worker) -> None:
    if not ARCHITECTURES[name].training_limit:
        _check(name, worker)
        return
    with pytest.raises((WorkError, AssertionError)):
        _check(name, worker)


@pytest.mark.exhaustive  # 88 seconds that prove the test above, not the product
@pytest.mark.filterwarnings("ignore")
def test_a_learning_rate_on_the_device_that_is_off_by_one_percent_fails(tmp_path: Path) -> None:
    try:
        trained = train_architecture(ARCHITECTURES["vit"], tmp_path, device_rate=1.01)
    finally:
        SESSION.reset()
    assert trained.excess > 100
    assert not trained.passed


def test_an_oracle_that_would_let_a_wrong_trainer_pass_is_none() -> None:
    right = Trained(1, 1e-7, 1e-7, 0.1, "weight", 500.0, (), 1.0)
    assert right.passed
    assert not dataclasses.replace(right, wrong=0.9).passed
    assert not dataclasses.replace(right, excess=1.1).passed
    assert not dataclasses.replace(right, excess=float("nan")).passed
