"""What settings ask for spatial mapping, and which are refused."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx.parser
import pytest
import torch
from pydantic import BaseModel
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import GraphMismatchError, UsageError
from samba_onnx.pef import load_pef
from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.fingerprint import Fingerprint
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.sessions import SambaSession
from samba_onnx.sessions.spatial import (
    one_mini_batch,
    refuse_batch_dimensions,
    spatial_batches,
    with_all_mini_batches,
)
from samba_onnx.sessions.traced import TracedGraph

SETTINGS: dict[str, tuple[dict[str, Any], int]] = {
    "nothing": ({}, 0),
    "section": ({"mapping": "section", "num_spatial_batches": 1}, 0),
    "one mini-batch": ({"mapping": "spatial"}, 1),
    "several": ({"mapping": "Spatial", "num_spatial_batches": 8}, 8),
    "the most": ({"mapping": "spatial", "num_spatial_batches": 2**31 - 1}, 2**31 - 1),
    "a parser's None": ({"mapping": "spatial", "num_spatial_batches": None}, 1),
}
REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "another mapping": ({"mapping": "diagonal"}, "give one of section, spatial"),
    "no mini-batch": ({"mapping": "spatial", "num_spatial_batches": 0}, "give a number from 1 on"),
    "a word": ({"mapping": "spatial", "num_spatial_batches": "two"}, "give a number from 1 on"),
    "a flag": ({"mapping": "spatial", "num_spatial_batches": True}, "give a number from 1 on"),
    "section mapping": ({"num_spatial_batches": 2}, "but mapping is 'section'"),
    "too many": ({"mapping": "spatial", "num_spatial_batches": 2**31}, "give a number from 1 on"),
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


GRAPH: Any = SimpleNamespace(spatial_batches=3)
SECTIONS: Any = SimpleNamespace(spatial_batches=0)
MANIFEST: Any = SimpleNamespace(
    symbols=[
        Symbol("x", SymbolKind.INPUT, "tensor(int64)", (6, 2), batch_shape=(2, 2)),
        Symbol("each", SymbolKind.INPUT, "tensor(int64)", (3,), batch_shape=()),
        Symbol("scale", SymbolKind.INPUT, "tensor(float)", (2,)),
        Symbol("y", SymbolKind.OUTPUT, "tensor(int64)", (6, 5), batch_shape=(2, 5)),
    ]
)


def whole(name: str, *shape: int) -> samba.SambaTensor:
    return samba.SambaTensor(torch.arange(torch.Size(shape).numel()).reshape(shape), name=name)


def test_the_first_mini_batch_stands_for_all() -> None:
    scale = samba.ones(2, name="scale")
    inputs = {"x": whole("x", 6, 2), "more": [whole("each", 3), scale, None, True]}
    assert one_mini_batch(inputs, SECTIONS, MANIFEST) is inputs
    cut = one_mini_batch(inputs, GRAPH, MANIFEST)
    assert (cut["x"].sn_name, cut["x"].torch().tolist()) == ("x", [[0, 1], [2, 3]])
    each, *rest = cut["more"]
    assert (each.sn_name, each.torch().tolist()) == ("each", 0)
    assert rest[0] is scale
    assert rest[1:] == [None, True]
    # As a program has it that traces with what it compiled with.
    one = whole("x", 2, 2)
    assert one_mini_batch(one, GRAPH, MANIFEST) is one
    empty = samba.SambaTensor(shape=(6, 2), dtype=torch.int64, name="x")
    made = one_mini_batch(empty, GRAPH, MANIFEST)
    assert (made.sn_name, made.shape, made.dtype) == ("x", (2, 2), torch.int64)
    assert not made.has_data
    with pytest.raises(
        GraphMismatchError,
        match=r"'x' has shape \[4, 2\], but a run of this PEF takes 3 mini-batches of \[2, 2\] in one tensor",
    ):
        one_mini_batch(whole("x", 4, 2), GRAPH, MANIFEST)


def test_a_trace_of_one_mini_batch_becomes_that_of_all() -> None:
    x, scale, total = whole("x", 2, 2), samba.ones(2, name="scale"), samba.zeros(1, name="total")
    outputs = (samba.SambaTensor(shape=(2, 5), dtype=torch.int64, name="y"), total)
    traced = TracedGraph("g", None, (x, scale), outputs, Fingerprint((), ()))
    given = (whole("x", 6, 2), scale)
    assert with_all_mini_batches(traced, given, SECTIONS, MANIFEST) is traced
    made = with_all_mini_batches(traced, given, GRAPH, MANIFEST)
    assert made.inputs == given
    assert (made.outputs[0].sn_name, made.outputs[0].shape) == ("y", (6, 5))
    assert made.outputs[1] is total


def test_mini_batches_lie_along_the_first_dimension() -> None:
    refuse_batch_dimensions([samba.ones(2, name="x"), samba.ones(2, 2, name="y", batch_dim=0)])
    with pytest.raises(UsageError, match="input 'z' has batch_dim 1; in spatial mapping"):
        refuse_batch_dimensions({"z": samba.ones(2, 2, name="z", batch_dim=1)})
