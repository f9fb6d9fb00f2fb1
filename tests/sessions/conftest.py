"""A session for every test, and a compiled model for those that do not change it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import samba_onnx as samba
from samba_onnx.sessions import SESSION, SambaSession
from tests.sessions.modules import Classifier


@dataclass(frozen=True)
class Compiled:
    """A model with its inputs and its PEF."""

    model: Classifier
    features: samba.SambaTensor
    shift: samba.SambaTensor
    path: str

    @property
    def inputs(self) -> tuple[samba.SambaTensor, samba.SambaTensor]:
        return self.features, self.shift

    def trace(self, **options: object) -> tuple[samba.SambaTensor, ...]:
        return samba.utils.trace_graph(self.model, self.inputs, pef=self.path, **options)

    def expected(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            probabilities, logits = self.model(*inputs)
        return samba.to_torch(probabilities), samba.to_torch(logits)


@pytest.fixture(autouse=True)
def session() -> Iterator[SambaSession]:
    SESSION.reset()
    yield SESSION
    SESSION.disable_lazy_param()
    SESSION.reset()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    torch.manual_seed(7)
    model = Classifier().eval()
    samba.from_torch_model_(model)
    features = samba.randn(2, 4, name="features")
    shift = samba.randn(3, name="shift")
    folder: Path = tmp_path_factory.mktemp("pef")
    path = SESSION.compile(model, (features, shift), output=folder / "classifier.pef")
    return Compiled(model, features, shift, path)
