"""No output overwrites an input in its region before a later section has read that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.graph import FwdGraph
from samba_onnx.passes.planning.overwriting import copy_what_is_read_on, overwrite_last
from samba_onnx.passes.planning.partitioning import Group, Home
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.sessions import SESSION


class ReadBehindTheHost(nn.Module):
    """The old value is read behind an operator that no RDU has."""

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        after = state + 1
        return (torch.atan(x) + state).sum(-1), after


class BothBehindTheHost(nn.Module):
    """Old and new value are read together."""

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        after = state + 1
        return (torch.atan(x) * after + state).sum(-1), after


class ReadBehindOtherSections(nn.Module):
    """The old value is read last of all."""

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        after = state + 1
        return ((x * 2).exp() * state).sum(-1) + state[:, 0], after


class ReadOn(nn.Module):
    """What is computed of the new value meets the old one."""

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        after = state + 1
        shares = torch.softmax((x @ x.T) * after[:, :1], -1)
        return shares.sum(-1) * state[:, 0], after


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    SESSION.reset()
    yield
    SESSION.reset()


@pytest.mark.parametrize("level", ["o0", "o1", "o3"])
@pytest.mark.parametrize(
    "kind", [ReadBehindTheHost, BothBehindTheHost, ReadBehindOtherSections, ReadOn]
)
def test_a_state_is_read_before_it_is_overwritten(
    kind: type[nn.Module], level: str, tmp_path: Path
) -> None:
    module = kind().eval()
    samba.from_torch_model_(module)
    inputs = tuple(
        samba.SambaTensor(shape=(2, 3), dtype=torch.float32, name=name) for name in ("x", "state")
    )
    outputs = samba.utils.trace_multigraph(module, inputs)
    outputs[1].sn_region_name = "state"
    samba.session.add_graph(FwdGraph(inputs, outputs, name="step"))
    path = samba.session.compile_multigraph(output=tmp_path / "step.pef", level=level)
    assert path is not None
    samba.session.init_multigraph_runtime(path)
    torch.manual_seed(0)
    x, state = torch.rand(2, 3), torch.rand(2, 3)
    given = {"x": x, "state": state}
    for _ in range(3):
        (made,) = samba.session.run(samba.from_named_dict(given), outputs[0], graph_name="step")
        expected, state = module(x, state)
        # The same kernels in another order: rounding of float32.
        torch.testing.assert_close(samba.to_torch(made), expected, rtol=1e-6, atol=1e-6)
        given = {"x": x}
    (kept,) = samba.session.get_tensors_by_name(["state"])
    assert torch.equal(kept.torch(), state)


def chain(*, read_on: bool) -> ir.Model:
    """``new = old + 1``, and two nodes behind it that read the old value."""
    text = """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[4] old, float[4] x) => (float[4] new, float[4] y) {
            one = Constant <value = float {1.0}> ()
            new = Add (old, one)
            t = Exp (PLACE)
            y = Mul (t, old)
        }
    """
    return ir.from_onnx_text(text.replace("PLACE", "new" if read_on else "x"))


def test_a_node_whose_result_is_there_too_early_becomes_the_last_group() -> None:
    graph = chain(read_on=False).graph
    constant, add, exp, mul = graph
    copy_what_is_read_on(graph, {"new": "old"})
    assert list(graph) == [constant, add, exp, mul]
    groups = [Group(Home.RDU, nodes) for nodes in ((constant, add), (exp,), (mul,))]
    roles = Roles(tuple(graph.inputs), tuple(graph.outputs), regions={"new": "old"})
    moved = overwrite_last(groups, roles)
    assert [group.nodes for group in moved] == [(constant,), (exp,), (mul,), (add,)]
    # Without a common region, and where the reader comes first, all stays.
    assert overwrite_last(groups, Roles(tuple(graph.inputs), tuple(graph.outputs))) == tuple(groups)
    early = [Group(Home.RDU, nodes) for nodes in ((constant, exp, mul), (add,))]
    assert overwrite_last(early, roles) == tuple(early)


def test_a_result_that_is_read_on_is_copied_last() -> None:
    graph = chain(read_on=True).graph
    copy_what_is_read_on(graph, {})
    assert len(graph) == 4
    copy_what_is_read_on(graph, {"new": "old"})
    *_, mul, copy = graph
    assert (mul.op_type, copy.op_type) == ("Mul", "Identity")
    assert graph.outputs[0] is copy.outputs[0]
    assert [value.name for value in graph.outputs] == ["new", "y"]


def test_a_row_that_is_put_into_a_table_needs_no_copy() -> None:
    graph = ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[4,2] table, int64[1,1] at, float[1,2] row) => (float[4,2] after, float[4,2] y) {
            after = ScatterND (table, at, row)
            y = Exp (after)
        }
    """).graph
    copy_what_is_read_on(graph, {"after": "table"})
    assert [node.op_type for node in graph] == ["ScatterND", "Exp"]
