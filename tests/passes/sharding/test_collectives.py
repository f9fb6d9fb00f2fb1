"""What RDUs send in a ring, by the arithmetic of one: 2(n-1)/n of a sum, what is lacking of the rest."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.facts.domains import ALL_GATHER, ALL_REDUCE, SAMBA_DOMAIN
from samba_onnx.passes.sharding.collectives import RDUS, collective, is_collective
from samba_onnx.pef.sharding import Collective, CollectiveKind


def node(
    op_type: str,
    before: tuple[int, ...],
    after: tuple[int, ...],
    rdus: int,
    dtype: ir.DataType = ir.DataType.FLOAT,
    domain: str = SAMBA_DOMAIN,
) -> ir.Node:
    """Make an exchange."""
    value = ir.Value(name="a", type=ir.TensorType(dtype), shape=ir.Shape(before))
    result = ir.Node(domain, op_type, [value], [ir.AttrInt64(RDUS, rdus)])
    result.outputs[0].shape, result.outputs[0].dtype = ir.Shape(after), dtype
    return result


@pytest.mark.parametrize(
    ("shape", "rdus", "dtype", "sent"),
    [
        ((3, 4), 2, ir.DataType.FLOAT, 2 * 6 * 4),
        ((3, 5), 4, ir.DataType.FLOAT, 6 * 4 * 4),  # 15 elements in 4 pieces: 4, rounded up
        ((16,), 8, ir.DataType.BFLOAT16, 14 * 2 * 2),
        ((6,), 2, ir.DataType.INT4, 2 * 2),  # 3 elements of 4 bits are 2 bytes
    ],
)
def test_sum_is_sent_in_pieces(
    shape: tuple[int, ...], rdus: int, dtype: ir.DataType, sent: int
) -> None:
    given = collective([node(ALL_REDUCE, shape, shape, rdus, dtype)])
    assert given == Collective(CollectiveKind.ALL_REDUCE, sent)


def test_gathered_value_is_sent_but_for_what_is_there() -> None:
    given = collective([node(ALL_GATHER, (3, 2), (3, 8), 4)])
    assert given == Collective(CollectiveKind.ALL_GATHER, 18 * 4)


def test_other_nodes_exchange_nothing() -> None:
    exchange = node(ALL_REDUCE, (2,), (2,), 2)
    other = node(ALL_REDUCE, (2,), (2,), 2, domain="")
    assert is_collective(exchange)
    assert not is_collective(other)
    assert not is_collective(node("Add", (2,), (2,), 2))
    assert collective([other]) is None
    assert collective([exchange, exchange]) is None
    assert collective([]) is None
