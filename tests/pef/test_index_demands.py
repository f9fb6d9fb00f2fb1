"""What a manifest says of indices agrees with its inputs, or is refused."""

from __future__ import annotations

import dataclasses

import pytest

from samba_onnx.errors import PefFormatError
from samba_onnx.pef.codec import decode_manifest, encode_manifest
from samba_onnx.pef.consistency import check_manifest
from samba_onnx.pef.manifest import Manifest
from samba_onnx.program.index_demands import IndexDemand
from tests.pef.builders import FLOAT, manifest, weights_layout

DEMAND = IndexDemand("x", "cross_entropy", 0, 9, (-100,), ((0, 4), (1, 300)))


def demanding(demand: IndexDemand, kind: str = "tensor(int32)") -> Manifest:
    """Return the toy with an input of integers, of which its graph demands something."""
    base = manifest(weights_layout())
    first, *others = base.symbols
    return dataclasses.replace(
        base,
        symbols=(dataclasses.replace(first, type=kind), *others),
        graphs=(dataclasses.replace(base.graphs[0], index_demands=(demand,)),),
    )


def test_it_is_read_as_it_was_written() -> None:
    written = demanding(DEMAND)
    check_manifest(written)
    assert decode_manifest(encode_manifest(written)) == written


def test_a_manifest_without_demands_has_no_field_for_them() -> None:
    assert b"index_demands" not in encode_manifest(manifest(weights_layout()))


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        (dataclasses.replace(DEMAND, input="y"), "names input y, which is not there"),
        (dataclasses.replace(DEMAND, lowest=10), "demands numbers from 10 to 9"),
        (dataclasses.replace(DEMAND, part=((0, 4),)), "a part of x that has other axes"),
        (dataclasses.replace(DEMAND, part=((0, 4), (3, 1))), "an impossible part of x"),
        (dataclasses.replace(DEMAND, part=((0, 4), (-1, 1))), "an impossible part of x"),
        (dataclasses.replace(DEMAND, part=((0, 4), (1,))), "an impossible part of x"),
    ],
)
def test_contradictions_are_refused(demand: IndexDemand, message: str) -> None:
    with pytest.raises(PefFormatError, match=message):
        check_manifest(demanding(demand))


def test_indices_are_integers() -> None:
    with pytest.raises(PefFormatError, match=r"demands indices of x, which is tensor\(float\)"):
        check_manifest(demanding(DEMAND, FLOAT))
