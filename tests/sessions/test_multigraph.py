"""Several graphs in one PEF, which share weights and regions of device memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import samba_onnx as samba
from samba_onnx.errors import GraphMismatchError, UsageError
from samba_onnx.graph import FwdGraph
from samba_onnx.pef import load_pef
from samba_onnx.sessions import SambaSession
from tests.sessions.modules import Doubled, Fill, Memory

ROWS, COLUMNS = 4, 3


def trace(step: Memory, fill: Fill) -> dict[str, tuple[samba.SambaTensor, ...]]:
    """Trace both graphs; the cache is one region for both."""
    rows = samba.zeros(ROWS, COLUMNS, name="rows")
    filled = samba.utils.trace_multigraph(fill, rows)
    row = samba.zeros(COLUMNS, name="row")
    position = samba.zeros(1, dtype=torch.int64, name="position")
    cache = samba.zeros(ROWS, COLUMNS, name="cache", region_name="shared_cache")
    stepped = samba.utils.trace_multigraph(step, (row, position, cache))
    filled[1].sn_region_name = "shared_cache"
    stepped[1].sn_region_name = "shared_cache"
    samba.session.add_graph(FwdGraph({"rows": rows}, filled, name="fill"))
    samba.session.add_graph(FwdGraph((row, position, cache), stepped, name="step"), overwrite=True)
    return {"fill": filled, "step": stepped}


def make() -> tuple[Memory, Fill]:
    step = Memory(ROWS, COLUMNS).eval()
    fill = Fill(step.scale).eval()
    samba.from_torch_model_(step)
    fill.scale = step.scale
    return step, fill


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    samba.session.reset()
    trace(*make())
    output = tmp_path_factory.mktemp("pef") / "graphs.pef"
    made = samba.session.compile_multigraph(name="graphs", output=output, enable_hypersection=True)
    assert made == str(output)
    return made


def test_graphs_share_regions_on_the_device(session: SambaSession, path: str) -> None:
    step, fill = make()
    outputs = trace(step, fill)
    session.init_multigraph_runtime(path)
    rows = torch.arange(float(ROWS * COLUMNS)).reshape(ROWS, COLUMNS)
    session.transfers.reset()
    session.run([samba.from_torch_tensor(rows, name="rows")], (), graph_name="fill")
    cache = rows * step.scale.data
    for place in (2, 0):
        new = torch.full((COLUMNS,), 10.0 + place)
        inputs = {"row": new, "position": torch.tensor([place])}
        (total,) = session.run(samba.from_named_dict(inputs), outputs["step"][0], graph_name="step")
        cache[place] = new * step.scale.data
        torch.testing.assert_close(total.torch(), cache.sum(0))
    moved = {move.symbol for move in session.transfers}
    assert moved == {"rows", "row", "position", outputs["step"][0].sn_name}
    (kept,) = session.get_tensors_by_name(["shared_cache"])
    torch.testing.assert_close(kept.torch(), cache)


def test_graphs_that_are_not_compared_get_a_note(path: str) -> None:
    with load_pef(path) as pef:
        (note,) = (note for note in pef.manifest.notes if "compared" in note)
    assert note.startswith("Graphs that were traced are not compared with eager torch")


def test_a_shared_weight_is_there_once(session: SambaSession, path: str) -> None:
    step, fill = make()
    trace(step, fill)
    session.init_multigraph_runtime(path)
    assert session.get_weight_names() == ["memory__scale"]
    sent = [move.symbol for move in session.transfers if move.symbol == "memory__scale"]
    assert sent == ["memory__scale"]


def test_a_graph_must_be_named_when_there_are_several(session: SambaSession, path: str) -> None:
    trace(*make())
    session.init_multigraph_runtime(path)
    with pytest.raises(UsageError, match="give graph_name, one of fill, step"):
        session.run([samba.zeros(ROWS, COLUMNS, name="rows")])


def test_what_was_not_traced_is_refused(session: SambaSession, path: str) -> None:
    step, fill = make()
    with pytest.raises(GraphMismatchError, match=r"'fill' of .* is none of those that were traced"):
        session.init_multigraph_runtime(path)
    (total, _) = samba.utils.trace_multigraph(fill, samba.zeros(ROWS, COLUMNS, name="rows"))
    with pytest.raises(GraphMismatchError, match="'step'"):
        session.init_multigraph_runtime(path)
    with pytest.raises(UsageError, match="not those of one trace"):
        session.add_graph(FwdGraph((), samba.zeros(1, name="stranger"), name="other"))
    with pytest.raises(UsageError, match="no graphs to compile"):
        session.compile_multigraph()
    session.add_graph(FwdGraph((), total, name="one"))
    with pytest.raises(UsageError, match="a graph 'one' already"):
        session.add_graph(FwdGraph((), total, name="one"))
    assert step.scale is not None


def test_equal_outputs_of_several_graphs_get_names_of_their_own(session: SambaSession) -> None:
    module = Doubled()
    first = samba.utils.trace_multigraph(module, samba.zeros(1, name="a"))
    second = samba.utils.trace_multigraph(module, samba.zeros(2, name="b"))
    third = samba.utils.trace_multigraph(module, samba.zeros(3, name="c"), trace_prefix="third")
    assert [t.sn_name for (t,) in (first, second, third)] == [
        "doubled__mul__outputs__0",
        "doubled__mul__outputs__0_1",
        "third__doubled__mul__outputs__0",
    ]


def test_compile_without_a_pef(session: SambaSession, tmp_path: Path) -> None:
    trace(*make())
    assert session.compile_multigraph(samba_only=True) is None
    folder = session.compile_multigraph("named", config_dict={"output_folder": str(tmp_path)})
    assert folder == str(tmp_path / "named" / "named.pef")


def test_one_of_several_graphs_has_to_be_named(session: SambaSession, path: str) -> None:
    trace(*make())
    session.init_multigraph_runtime(path)
    assert session._program.only_graph == ""
    with pytest.raises(UsageError, match="several graphs; give graph_name, one of fill, step"):
        session.run([], ())
