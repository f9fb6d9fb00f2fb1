"""What RDUs send: in a ring 2(n-1)/n of a sum, directly n-1 of it, of the rest what is lacking."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import pytest

from samba_onnx.facts.domains import ALL_GATHER, ALL_REDUCE, SAMBA_DOMAIN
from samba_onnx.passes.sharding.collectives import RDUS, collective, is_collective
from samba_onnx.passes.targets import load_target
from samba_onnx.pef.sharding import Collective, CollectiveKind

LINK = dataclasses.replace(
    load_target("sn40l").summary,
    rdu_link_bytes_per_second=2.0**35,
    rdu_link_latency_seconds=2.0**-18,
)
NO_WAITING = dataclasses.replace(LINK, rdu_link_latency_seconds=1e-30)


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
        ((6,), 2, ir.DataType.INT4, 3),  # directly: 6 elements of 4 bits
    ],
)
def test_sum_is_sent_in_pieces(
    shape: tuple[int, ...], rdus: int, dtype: ir.DataType, sent: int
) -> None:
    given = collective([node(ALL_REDUCE, shape, shape, rdus, dtype)], NO_WAITING)
    ring = Collective(CollectiveKind.ALL_REDUCE, sent, steps=2 * (rdus - 1))
    # Of two RDUs each sends as much directly.
    assert given == (dataclasses.replace(ring, direct=True, steps=0) if rdus == 2 else ring)


@pytest.mark.parametrize("rdus", [2, 3, 8, 16])
def test_a_sum_takes_the_way_that_is_there_sooner_and_no_size_is_a_cliff(rdus: int) -> None:
    seconds, direct = [], []
    for size in (1, 8, 4096, 65_536, 262_144, 1 << 20, 1 << 24):
        given = collective([node(ALL_REDUCE, (size,), (size,), rdus)], LINK)
        assert given is not None
        direct.append(given.direct)
        seconds.append(LINK.exchange_seconds(given.bytes, given.steps))
        whole, piece = 4 * size, 4 * -(-size // rdus)
        ways = (
            LINK.exchange_seconds((rdus - 1) * whole),
            LINK.exchange_seconds(2 * (rdus - 1) * piece, 2 * (rdus - 1)),
        )
        assert seconds[-1] == min(ways)
    assert seconds == sorted(seconds)
    assert direct[0]
    assert direct[-1] is (rdus == 2)
    assert direct == sorted(direct, reverse=True)


def test_gathered_value_is_sent_but_for_what_is_there() -> None:
    given = collective([node(ALL_GATHER, (3, 2), (3, 8), 4)], NO_WAITING)
    assert given == Collective(CollectiveKind.ALL_GATHER, 18 * 4)


def test_other_nodes_exchange_nothing() -> None:
    exchange = node(ALL_REDUCE, (2,), (2,), 2)
    other = node(ALL_REDUCE, (2,), (2,), 2, domain="")
    assert is_collective(exchange)
    assert not is_collective(other)
    assert not is_collective(node("Add", (2,), (2,), 2))
    assert collective([other], LINK) is None
    assert collective([exchange, exchange], LINK) is None
    assert collective([], LINK) is None
