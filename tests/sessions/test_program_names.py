"""What a PEF calls its weights, scalars and sections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import samba_onnx as samba
from samba_onnx.sessions.hyperparameters import RATE, SEED
from samba_onnx.sessions.loaded import LoadedProgram
from samba_onnx.sessions.profiler import Profiler
from samba_onnx.sessions.program_names import ProgramNames


class Dropping(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.drop = torch.nn.Dropout(0.25)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.layer(x)).sum()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedProgram]:
    model = Dropping().train()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    path: Path = tmp_path_factory.mktemp("names") / "dropping.pef"
    inputs = (samba.ones(2, 4, name="x"),)
    samba.session.compile(model, inputs, optimizer, output=path, check=False)
    program = LoadedProgram(Profiler())
    program.load(path)
    yield program
    program.close()


def test_names(program: LoadedProgram) -> None:
    program_names, manifest = ProgramNames(program), program.manifest
    # Its update is a weight, too, under another name.
    assert program_names.get_weight_names() == ["dropping__layer__weight", "dropping__layer__bias"]
    names = program_names.get_argin_names()
    assert {"lr", "momentum", "weight_decay"} <= set(names)
    assert not any("__lr" in name for name in names), "derived by the session"
    (rate,) = program_names.get_dropout_rate_argin_names()
    (seed,) = program_names.get_dropout_seed_argin_names()
    assert (rate.endswith(RATE), seed.endswith(SEED)) == (True, True)
    assert {rate, seed} <= set(names)
    assert program_names.get_section_types() == {"FWD", "BCKWD", "OPT"}
    ids = program_names.get_section_ids()
    assert sorted(ids) == sorted(manifest.stages())
    assert ids == [call.stage for call in manifest.graphs[0].calls]
