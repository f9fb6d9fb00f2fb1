"""What settings ask for spatial mapping, and which are refused."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import onnx.parser
import pytest
import torch
from pydantic import BaseModel
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.pef import load_pef
from samba_onnx.sessions import SambaSession
from samba_onnx.sessions.spatial import spatial_batches

SETTINGS: dict[str, tuple[dict[str, Any], int]] = {
    "nothing": ({}, 0),
    "section": ({"mapping": "section", "num_spatial_batches": 1}, 0),
    "one mini-batch": ({"mapping": "spatial"}, 1),
    "several": ({"mapping": "Spatial", "num_spatial_batches": 8}, 8),
    "a parser's None": ({"mapping": "spatial", "num_spatial_batches": None}, 1),
}
REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "another mapping": ({"mapping": "diagonal"}, "give one of section, spatial"),
    "no mini-batch": ({"mapping": "spatial", "num_spatial_batches": 0}, "give a number from 1 on"),
    "a word": ({"mapping": "spatial", "num_spatial_batches": "two"}, "give a number from 1 on"),
    "a flag": ({"mapping": "spatial", "num_spatial_batches": True}, "give a number from 1 on"),
    "section mapping": ({"num_spatial_batches": 4}, "but mapping is 'section'"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name: str) -> None:
    options, expected = SETTINGS[name]
    assert spatial_batches(options) == expected


@pytest.mark.parametrize("name", REFUSALS)
def test_settings_that_are_refused(name: str) -> None:
    options, message = REFUSALS[name]
    with pytest.raises(UsageError, match=message):
        spatial_batches(options)


class Settings(BaseModel):
    mapping: str = "spatial"
    num_spatial_batches: int = 3


@pytest.mark.parametrize("way", ["config_dict", "setup", "command line"])
def test_every_way_to_give_settings(session: SambaSession, way: str, tmp_path: Path) -> None:
    model, x = nn.Linear(2, 2), samba.randn(1, 2, name="x")
    samba.from_torch_model_(model)
    config = None
    if way == "config_dict":
        config = Settings().model_dump()
    elif way == "setup":
        session.setup(Settings())
    else:
        session.set_command_line(Namespace(**Settings().model_dump()))
    try:
        path = session.compile(model, (x,), config_dict=config, output=tmp_path / "m.pef")
    finally:
        session.set_command_line({})
    with load_pef(path) as pef:
        assert [graph.spatial_batches for graph in pef.manifest.graphs] == [3]


def test_several_graphs_are_compiled_for_section_mapping(session: SambaSession) -> None:
    model, x = nn.Linear(2, 2), samba.randn(1, 2, name="x")
    samba.from_torch_model_(model)
    samba.utils.trace_multigraph(model, (x,))
    graph = samba.graph.FwdGraph((x,), model.output_tensors, name="g")
    session.add_graph(graph)
    with pytest.raises(UsageError, match="keeps one graph on the RDU"):
        session.compile_multigraph(config_dict=Settings().model_dump())


def test_onnx_models_that_only_run_forward(session: SambaSession, tmp_path: Path) -> None:
    header = '<ir_version: 10, opset_import: ["" : 21]>\n'
    model = onnx.parser.parse_model(header + "g (float[1,2] x) => (float[1,2] y) { y = Relu (x) }")
    x, config = samba.SambaTensor(torch.ones(1, 2), name="x"), Settings().model_dump()
    with pytest.raises(UsageError, match=r"samba\.from_onnx"):
        session.compile(model, (x,), config_dict=config, output=tmp_path / "m.pef")
    module = samba.from_onnx(model)
    path = session.compile(module, (x,), config_dict=config, output=tmp_path / "m.pef")
    whole = samba.SambaTensor(torch.tensor([[1.0, -1], [-2, 2], [3, 3]]), name="x")
    outputs = samba.utils.trace_graph(module, (whole,), pef=path, mapping="spatial")
    (made,) = session.run((whole,), outputs)
    assert samba.to_torch(made).tolist() == [[1, 0], [0, 2], [3, 3]]
