"""What is in a PEF does not depend on the engine: the stages are the same bytes whichever is there."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import samba_onnx
import samba_onnx as samba
from samba_onnx.runtime.engine import evaluation
from samba_onnx.runtime.engine.protocol import Engine, EngineSettings
from samba_onnx.runtime.engine.registry import ENGINES, make_engine


class Small(nn.Module):
    """Convolutions, a normalisation, a dropout and a product: what engines have forms of their own for."""

    def __init__(self) -> None:
        super().__init__()
        # A bias before a normalisation has no gradient but rounding, of which Adam makes a step.
        self.convolution = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.normalisation = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(0.25)
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        features = torch.relu(self.normalisation(self.convolution(x))).mean((2, 3))
        return nn.functional.cross_entropy(self.linear(self.dropout(features)), labels)


def stages(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".onnx")}


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Let the checks of a compilation execute on one engine; returns what they asked for."""

    def choose(engine: str) -> list[str]:
        asked: list[str] = []

        def make(name: str, settings: EngineSettings) -> Engine:
            asked.append(name)
            return make_engine(engine, settings)

        monkeypatch.setattr(evaluation, "make_engine", make)
        return asked

    return choose


def test_a_training_program(tmp_path: Path, executed: Callable[[str], list[str]]) -> None:
    contents = []
    for engine in ENGINES:
        asked = executed(engine)
        torch.manual_seed(0)
        module = Small().train()
        samba.from_torch_model_(module)
        optimizer = samba.optim.AdamW(module.parameters(), lr=0.01)
        inputs = (
            samba.from_torch_tensor(torch.randn(4, 3, 8, 8), name="x"),
            samba.from_torch_tensor(torch.tensor([0, 1, 2, 3]), name="labels"),
        )
        path = samba.session.compile(
            module, inputs, optimizer, check=True, output=tmp_path / f"{engine}.pef"
        )
        assert asked, "the check executed nothing"
        contents.append(stages(Path(path)))
    first, *others = contents
    assert len(first) >= 3
    assert all(other == first for other in others)


def test_an_onnx_model_whichever_engine_ran_it_before(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>'
        "g (float[2,3,8,8] x, float[8,3,3,3] w) => (float[2,8] y) "
        "{ c = Conv(x, w) r = HardSwish(c) k = Constant<value_ints=[2,3]>() "
        "y = ReduceMean<keepdims=0>(r, k) }"
    )
    contents = []
    for engine in ENGINES:
        path = tmp_path / f"{engine}.pef"
        with samba_onnx.convert(model, path, seed=3) as pef:
            inputs = {
                "x": np.ones((2, 3, 8, 8), np.float32),
                "w": np.ones((8, 3, 3, 3), np.float32),
            }
            with samba_onnx.Device(pef, engine=engine) as device:
                device.run(inputs)
        contents.append(stages(path))
    assert contents[0] == contents[1]
    assert contents[0]
