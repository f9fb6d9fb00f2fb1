"""How the columns of a linear layer are cut, by what reads them: heads, pieces, or columns alone.

A column belongs to whoever computes with it: expected are the ranges of columns that each RDU has.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from samba_onnx.passes.sharding.collectives import SHARDED
from tests.passes.sharding.executed import cut_model
from tests.passes.sharding.models import Writer

Ranges = tuple[tuple[int, ...], ...]


def cut_columns(
    write: Callable[[Writer, str], str], width: int, rdus: int
) -> tuple[Ranges | None, tuple[str, ...]]:
    """Return which columns of a layer each RDU has, and the reasons for what is whole."""
    writer = Writer()
    layer = writer.node("MatMul", "x", writer.weight(3, width))
    result = write(writer, layer)
    proto = writer.model({result: ()}, {"x": (onnx.TensorProto.FLOAT, (2, 5, 3))})
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto.graph.output[0].type.tensor_type.ClearField("elem_type")
    done = cut_model(onnx.shape_inference.infer_shapes(proto), rdus)
    shards = [value.meta[SHARDED] for value in done.model.graph.inputs if SHARDED in value.meta]
    ranges = shards[0].axes[0].ranges if shards else None
    return ranges, tuple(done.cut.reasons)


def _plain(writer: Writer, value: str) -> str:
    return writer.node("Tanh", value)


def _heads(count: int, width: int) -> Callable[[Writer, str], str]:
    return lambda writer, value: writer.heads(value, count, width)


def _through(*names: str) -> Callable[[Writer, str], str]:
    """Elementwise operators between a layer and its three heads of four columns."""

    def write(writer: Writer, value: str) -> str:
        for name in names:
            value = writer.node(name, value)
        return writer.heads(value, 3, 4)

    return write


def _transposed(writer: Writer, value: str) -> str:
    turned = writer.node("Transpose", value, perm=[2, 0, 1])
    return writer.node("Reshape", turned, writer.integers(3, 4, 10))


def _reversed(writer: Writer, value: str) -> str:
    return writer.node("Reshape", writer.node("Transpose", value), writer.integers(3, 4, 5, 2))


def _all_three(writer: Writer, value: str) -> str:
    """Queries, keys and values as an axis of their own before the heads."""
    shaped = writer.node("Reshape", value, writer.integers(2, 5, 3, 2, 4))
    return writer.node("Transpose", shaped, perm=[2, 0, 3, 1, 4])


def _split(writer: Writer, value: str) -> str:
    """Queries of four heads, keys and values of two, of one layer."""
    first = writer.node("Split", value, writer.integers(16, 8, 8), axis=-1, outputs=3)
    query = writer.heads(first, 4, 4)
    both = [writer.heads(f"{first}_{n}", 2, 4) for n in (1, 2)]
    return writer.node("Concat", query, *both, axis=1)


def _slices(*spans: tuple[int, int]) -> Callable[[Writer, str], str]:
    def write(writer: Writer, value: str) -> str:
        pieces = [
            writer.node(
                "Tanh",
                writer.node(
                    "Slice", value, writer.integers(a), writer.integers(b), writer.integers(-1)
                ),
            )
            for a, b in spans
        ]
        return writer.node("Concat", *pieces, axis=2)

    return write


def _steps(step: int) -> Callable[[Writer, str], str]:
    """Two slices that state their step."""

    def write(writer: Writer, value: str) -> str:
        pieces = [
            writer.node("Slice", value, *(writer.integers(n) for n in (a, b, -1, step)))
            for a, b in ((0, 8), (8, 12))
        ]
        return writer.node("Concat", *pieces, axis=2)

    return write


def _shaped(*sizes: int) -> Callable[[Writer, str], str]:
    return lambda writer, value: writer.node(
        "Tanh", writer.node("Reshape", value, writer.integers(2, 5, *sizes))
    )


def _flat(writer: Writer, value: str) -> str:
    flat = writer.node("Flatten", value, axis=2)
    return writer.node("Tanh", writer.node("Reshape", flat, writer.integers(10, 3, 4)))


def _squeezed(writer: Writer, value: str) -> str:
    wide = writer.node("Unsqueeze", value, writer.integers(0))
    return writer.heads(writer.node("Squeeze", wide, writer.integers(0)), 3, 4)


def _sliced_rows(writer: Writer, value: str) -> str:
    rows = writer.node("Slice", value, writer.integers(0), writer.integers(3), writer.integers(1))
    return writer.node("Tanh", rows)


def _flattened(writer: Writer, value: str) -> str:
    flat = writer.node("Reshape", value, writer.integers(10, 12))
    wide = writer.node("Unsqueeze", flat, writer.integers(0))
    return writer.heads(wide, 3, 4)


def _broadcast(writer: Writer, value: str) -> str:
    """Added to what has one axis more."""
    wide = writer.node("Add", value, writer.constant(np.zeros((7, 1, 1, 1), np.float32)))
    shaped = writer.node("Reshape", wide, writer.integers(7, 2, 5, 3, 4))
    return writer.node("Tanh", shaped)


TWO, THREE = ((0, 6), (6, 12)), ((0, 4), (4, 8), (8, 12))
WHOLE_HEADS = (
    "3 heads of a linear layer cannot be divided between 2 RDUs: each computes all of them"
)
FEW = "3 heads are fewer than 6 RDUs: each head is on 2 of them"


@pytest.mark.parametrize(
    ("write", "width", "rdus", "ranges", "reasons"),
    [
        (_plain, 12, 2, TWO, ()),
        (_plain, 12, 5, None, ("12 columns of a linear layer cannot be divided between 5 RDUs: each computes all of them",)),
        (_heads(3, 4), 12, 3, THREE, ()),
        (_heads(3, 4), 12, 2, None, (WHOLE_HEADS,)),
        (_heads(3, 4), 12, 6, tuple(each for each in THREE for _ in range(2)), (FEW,)),
        (_heads(1, 12), 12, 2, TWO, ()),
        (_heads(12, 1), 12, 2, TWO, ()),
        (_through("Tanh", "Neg"), 12, 2, None, (WHOLE_HEADS,)),
        (_through(*["Tanh"] * 11), 12, 2, None, (WHOLE_HEADS,)),
        (_through(*["Tanh"] * 12), 12, 2, TWO, ("Reshape joins elements of several RDUs",)),
        (_transposed, 12, 2, None, (WHOLE_HEADS,)),
        (_reversed, 12, 2, None, (WHOLE_HEADS,)),
        (_flattened, 12, 2, None, (WHOLE_HEADS,)),
        (_broadcast, 12, 2, None, (WHOLE_HEADS,)),
        (_all_three, 24, 2, ((0, 4, 8, 12, 16, 20), (4, 8, 12, 16, 20, 24)), ()),
        (_split, 32, 2, ((0, 8, 16, 20, 24, 28), (8, 16, 20, 24, 28, 32)), ()),
        (_slices((0, 8), (8, 12)), 12, 2, ((0, 4, 8, 10), (4, 8, 10, 12)), ()),
        (_slices((8, 12), (0, 4), (4, 8)), 12, 2, ((0, 2, 4, 6, 8, 10), (2, 4, 6, 8, 10, 12)), ()),
        (_sliced_rows, 12, 2, TWO, ()),
        (_steps(1), 12, 2, ((0, 4, 8, 10), (4, 8, 10, 12)), ()),
        (_steps(2), 12, 2, TWO, ("Slice takes unequal parts of what RDUs have",)),
        (_flat, 12, 2, None, (WHOLE_HEADS,)),
        (_squeezed, 12, 2, None, (WHOLE_HEADS,)),
        (_shaped(1, 3, 4), 12, 2, None, (WHOLE_HEADS,)),
        (_shaped(3, 8, 2), 48, 2, ((0, 8, 16, 24, 32, 40), (8, 16, 24, 32, 40, 48)), ()),
        (_shaped(4, 2, 2), 16, 2, ((0, 2, 4, 6, 8, 10, 12, 14), (2, 4, 6, 8, 10, 12, 14, 16)), ()),
        (_shaped(2, 3, 2), 12, 2, None, (WHOLE_HEADS,)),
        (_shaped(3, 1, 4), 12, 2, None, ("one head is on all RDUs",)),
    ],
)  # fmt: skip
def test_columns_are_cut_for_those_who_read_them(
    write: Callable[[Writer, str], str],
    width: int,
    rdus: int,
    ranges: Ranges | None,
    reasons: tuple[str, ...],
) -> None:
    assert cut_columns(write, width, rdus) == (ranges, reasons)


@pytest.mark.parametrize("spans", [((0, 6), (8, 12)), ((2, 6), (6, 12)), ((0, 4), (4, 8))])
def test_slices_with_gaps_ask_for_no_pieces(spans: tuple[tuple[int, int], ...]) -> None:
    ranges, _ = cut_columns(_slices(*spans), 12, 2)
    assert ranges == TWO
