"""What a PEF calls its weights, scalars and sections."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import samba_onnx as samba
from samba_onnx.pef import load_pef
from samba_onnx.pef.manifest import Manifest
from samba_onnx.sessions.hyperparameters import RATE, SEED
from samba_onnx.sessions.program_names import (
    argin_names,
    argin_names_ending,
    section_ids,
    section_types,
    weight_names,
)


class Dropping(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.drop = torch.nn.Dropout(0.25)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.layer(x)).sum()


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    model = Dropping().train()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    path: Path = tmp_path_factory.mktemp("names") / "dropping.pef"
    inputs = (samba.ones(2, 4, name="x"),)
    samba.session.compile(model, inputs, optimizer, output=path, check=False)
    with load_pef(path) as pef:
        return pef.manifest


def test_names(manifest: Manifest) -> None:
    # Its update is a weight, too, under another name.
    assert weight_names(manifest) == ["dropping__layer__weight", "dropping__layer__bias"]
    names = argin_names(manifest)
    assert {"lr", "momentum", "weight_decay"} <= set(names)
    assert not any("__lr" in name for name in names), "derived by the session"
    (rate,), (seed,) = (argin_names_ending(manifest, ending) for ending in (RATE, SEED))
    assert {rate, seed} <= set(names)
    assert section_types(manifest) == {"FWD", "BCKWD", "OPT"}
    ids = section_ids(manifest)
    assert sorted(ids) == sorted(manifest.stages())
    assert ids == [call.stage for call in manifest.graphs[0].calls]
