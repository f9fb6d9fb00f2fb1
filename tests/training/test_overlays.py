"""Training where activations take turns in device memory computes the same bits as with room for all."""

from __future__ import annotations

import copy
from pathlib import Path

import torch

import samba_onnx as samba
from samba_onnx.pef import load_pef
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.sessions import SESSION
from tests.training.small import Classifier, draw
from tests.training.trajectory import Prepared, prepare

TIGHT = """
extends = "sn40l"
name = "tight"
[hardware.tiers.hbm]
bytes = { value = 256, evidence = "assumed", note = "less than the model needs" }
"""


def trained(target: str, folder: Path) -> Prepared:
    folder.mkdir()
    torch.manual_seed(0)
    model = copy.deepcopy(Classifier().train())
    samba.from_torch_model_(model)
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.1)
    options = {"target": target, "level": "o0", "check": False}
    prepared = prepare(model, draw(), [optimizer], folder, **options)
    for _ in range(2):
        prepared.run(draw())
    # By their types, too: what FWD leaves for BCKWD is still there.
    for types in (["FWD"], ["BCKWD"], ["OPT"]):
        prepared.run(draw(), section_types=types)
    return prepared


def test_numbers_are_those_of_a_larger_device(tmp_path: Path) -> None:
    profile = tmp_path / "tight.toml"
    profile.write_text(TIGHT)
    expected = trained("sn40l", tmp_path / "roomy").parameters()
    SESSION.reset()
    tight = trained(str(profile), tmp_path / "tight")
    assert {name: value.tolist() for name, value in tight.parameters().items()} == {
        name: value.tolist() for name, value in expected.items()
    }
    with load_pef(tight.path) as pef:
        places = [
            symbol.region
            for symbol in pef.manifest.symbols
            if symbol.kind is SymbolKind.ACTIVATION and symbol.region
        ]
    assert len(set(places)) < len(places)
