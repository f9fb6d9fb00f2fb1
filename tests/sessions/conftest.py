"""A session for every test, and a compiled model for those that do not change it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest
import torch

import samba_onnx as samba
from samba_onnx.sessions import SESSION, Profiler, SambaSession
from samba_onnx.sessions.data_parallel import DataParallel
from samba_onnx.sessions.graph_traces import GraphTraces
from samba_onnx.sessions.loaded import LoadedProgram
from samba_onnx.sessions.trace_mode import TraceMode
from samba_onnx.sessions.traced_state import TracedState
from samba_onnx.sessions.tracer import Tracer
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


@dataclass(frozen=True)
class Parts:
    """What a session is put together from, without the session."""

    profiler: Profiler = field(default_factory=Profiler)
    state: TracedState = field(default_factory=TracedState)
    mode: TraceMode = field(default_factory=TraceMode)
    traces: GraphTraces = field(default_factory=GraphTraces)

    @cached_property
    def program(self) -> LoadedProgram:
        return LoadedProgram(self.profiler)

    @cached_property
    def tracer(self) -> Tracer:
        parallel = DataParallel(self.program)
        return Tracer(self.program, self.state, self.mode, self.traces, self.profiler, parallel)


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = Parts()
    yield parts
    parts.program.close()
