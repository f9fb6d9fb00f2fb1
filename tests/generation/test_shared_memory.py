"""What graphs of one PEF share in device memory: weights, regions, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from models.generation import Generator, Sizes
from samba_onnx.errors import InputError, UsageError
from samba_onnx.graph import FwdGraph
from samba_onnx.runtime.memory import DeviceMemory, DeviceTensor
from samba_onnx.sessions import SambaSession
from tests.generation.conftest import llama


class Scaled(nn.Module):
    """An elementwise product with a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Put(nn.Module):
    """Overwrites one row of a table."""

    def forward(self, row: Tensor, at: Tensor, table: Tensor) -> Tensor:
        return table.index_copy(0, at, row)


class Bent(nn.Module):
    """Changes a state by an operator that no RDU has."""

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(), torch.atan(state + x)


class Turned(nn.Module):
    """Reads a state by an operator that no RDU has."""

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        bent = torch.atan(state) + x
        return bent.sum(), bent


def empty(name: str, *shape: int, dtype: torch.dtype = torch.float32) -> samba.SambaTensor:
    return samba.SambaTensor(shape=shape, dtype=dtype, name=name)


def add(name: str, module: nn.Module, *inputs: samba.SambaTensor) -> tuple[samba.SambaTensor, ...]:
    outputs = samba.utils.trace_multigraph(module, inputs)
    samba.session.add_graph(FwdGraph(inputs, outputs, name=name))
    return outputs


@pytest.fixture
def pair(session: SambaSession, tmp_path: Path) -> dict[str, tuple[samba.SambaTensor, ...]]:
    """Two graphs, ready to run."""
    module = Scaled().eval()
    samba.from_torch_model_(module)
    outputs = {
        "one": add("one", module, empty("a", 4, 3)),
        "two": add("two", module, empty("b", 2, 3)),
    }
    path = session.compile_multigraph(output=tmp_path / "pair.pef")
    assert path is not None
    session.init_multigraph_runtime(path)
    return outputs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_and_cache_are_on_the_device_once(
    session: SambaSession, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = llama().to(dtype)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    sizes = Sizes(batch=1, prompt=8, rows=4096)
    generator = Generator(model, sizes)
    path = generator.compile(tmp_path / "llama.pef")
    (layers, heads, width) = (2, 2, 8)
    cache = 2 * layers * heads * sizes.rows * width * dtype.itemsize
    with samba.load_pef(path) as pef:
        manifest = pef.manifest
        held = sum(region.bytes for region in manifest.regions)
        # Constants, inputs, outputs and one place for each activation between sections.
        assert weights + cache <= held < weights + cache + 100_000
        # Keys, values and the number of tokens, of each layer.
        assert len({r.name for r in manifest.regions if r.name.startswith("cache")}) == 6
    generator.load(path)
    names = session.get_weight_names()
    assert len(names) == len(list(model.parameters()))
    sent = [move.symbol for move in session.transfers if move.symbol in names]
    assert sorted(sent) == sorted(names)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_is_written_where_it_lies(
    session: SambaSession,
    dtype: torch.dtype,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: DeviceMemory, name: str) -> DeviceTensor:
        raise AssertionError(f"{name} is written to a buffer first")

    monkeypatch.setattr(DeviceMemory, "private", refuse)
    rows, width = 1 << 10, 128
    at = empty("at", 1, dtype=torch.int64)
    (after,) = add(
        "put",
        Put(),
        empty("row", 1, width, dtype=dtype),
        at,
        empty("table", rows, width, dtype=dtype),
    )
    after.sn_region_name = "table"
    path = session.compile_multigraph(output=tmp_path / "put.pef")
    assert path is not None
    session.init_multigraph_runtime(path)
    table = torch.arange(float(rows)).to(dtype).repeat(width, 1).T.contiguous()
    first = {"row": torch.ones(1, width, dtype=dtype), "at": torch.tensor([7]), "table": table}
    session.run(samba.from_named_dict(first), (), graph_name="put")
    session.transfers.reset()
    for place in range(20):
        given = {"row": torch.full((1, width), 2.0, dtype=dtype), "at": torch.tensor([place])}
        session.run(samba.from_named_dict(given), (), graph_name="put")
    assert session.transfers.bytes == 20 * (width * dtype.itemsize + 8)
    table[:20] = 2.0
    (kept,) = session.get_tensors_by_name(["table"])
    assert torch.equal(kept.torch(), table)


def test_tensors_of_different_sizes_have_no_common_region(
    session: SambaSession, tmp_path: Path
) -> None:
    module = Scaled().eval()
    (one,) = add("one", module, empty("a", 4, 3))
    add("two", module, empty("b", 2, 3))
    one.sn_region_name = "b"
    with pytest.raises(UsageError, match="24 bytes is to share region 'b' with one of 48 bytes"):
        session.compile_multigraph(output=tmp_path / "x.pef")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "tensor"), [(Bent(), "bent__atan__outputs__0"), (Turned(), "state")], ids=type
)
def test_what_only_the_host_has_is_in_no_shared_region(
    session: SambaSession, module: nn.Module, tensor: str, tmp_path: Path
) -> None:
    outputs = add("step", module.eval(), empty("x", 4), empty("state", 4))
    outputs[1].sn_region_name = "state"
    message = (
        rf"tensor '{tensor}' is to be in region 'state' of device memory together with .*, but "
        r"only the host has it: Atan at test_shared_memory.py:\d+ runs there"
    )
    with pytest.raises(UsageError, match=message):
        session.compile_multigraph(output=tmp_path / "x.pef")


def test_the_graph_to_run_must_be_named(
    session: SambaSession, pair: dict[str, tuple[samba.SambaTensor, ...]]
) -> None:
    given = samba.from_named_dict({"a": torch.ones(4, 3)})
    (made,) = session.run(given, pair["one"], graph_name="one")
    for name in (None, ""):
        with pytest.raises(UsageError, match="several graphs; give graph_name, one of one, two"):
            session.run(given, pair["one"], graph_name=name)
    with pytest.raises(UsageError, match="graph 'three' does not exist; the PEF has one, two"):
        session.run(given, pair["one"], graph_name="three")
    with pytest.raises(InputError, match=r"input 'a' does not exist; graph 'two' has 'b'"):
        session.run(given, pair["two"], graph_name="two")
    # The refused runs changed nothing.
    (kept,) = session.get_tensors(pair["one"])
    assert torch.equal(kept.torch(), made.torch())
