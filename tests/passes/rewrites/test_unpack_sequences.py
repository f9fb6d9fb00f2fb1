from __future__ import annotations

import numpy as np
import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.unpack_sequences import UnpackSequencesPass
from tests.passes.rewrites.applying import check, numbers, operators, parse

HEAD = "g (float[2,7] x, float[2,7] w, int64 at) => (float[a,b] y, float[c,d] z)"
CONSTANTS = """<int64 zero = {0}, int64 last = {-1}, int64 far = {9}, int64 three = {3},
int64[2] sizes = {5, 2}>"""


def unpacked(body: str, *, modified: bool = True, outputs: str = "") -> list[str]:
    model = parse(f"{outputs or HEAD} {CONSTANTS} {{ {body} }}")
    InferShapesPass()(model)
    inputs = [numbers(2, 7), numbers(2, 7, seed=1), np.array(0)]
    check(model, UnpackSequencesPass(), inputs=inputs, modified=modified)
    return operators(model)


@pytest.mark.parametrize("split", ["x, sizes", "x, three"])
def test_pieces_of_known_sizes_become_a_split(split: str) -> None:
    body = (
        f"s = SplitToSequence<axis=1>({split})\n a = SequenceAt(s, zero)\n b = SequenceAt(s, last)"
    )
    assert unpacked(f"{body}\n y = Neg(a)\n z = Neg(b)") == ["Split", "Neg", "Neg"]


@pytest.mark.parametrize(("keepdims", "squeezes"), [(0, 2), (1, 0)])
def test_pieces_of_one_element_lose_their_axis_if_they_are_told_to(
    keepdims: int, squeezes: int
) -> None:
    rank = "float[b]" if squeezes else "float[a,b]"
    head = HEAD.replace("float[a,b]", rank).replace("float[c,d]", rank.replace("b", "c"))
    body = f"""s = SplitToSequence<axis=1, keepdims={keepdims}>(x)
 y = SequenceAt(s, zero)
 z = SequenceAt(s, last)"""
    model = parse(f"{head} {CONSTANTS} {{ {body} }}")
    InferShapesPass()(model)
    inputs = [numbers(2, 7), numbers(2, 7, seed=1), np.array(0)]
    check(model, UnpackSequencesPass(), inputs=inputs)
    assert operators(model).count("Squeeze") == squeezes


@pytest.mark.parametrize(
    "body",
    [
        "s = SplitToSequence<axis=1>(x, sizes)\n y = SequenceAt(s, at)\n z = Neg(x)",
        "s = SplitToSequence<axis=1>(x, sizes)\n n = SequenceLength(s)\n a = SequenceAt(s, zero)\n c = CastLike(n, x)\n y = Mul(a, c)\n z = Neg(x)",
        "s = SequenceConstruct(x, w)\n y = SequenceAt(s, at)\n z = Neg(x)",
    ],
)
def test_what_is_not_known_stays(body: str) -> None:
    assert "SequenceAt" in unpacked(body, modified=False)


def test_a_place_beyond_the_sequence_stays_an_error_of_the_device() -> None:
    body = "s = SplitToSequence<axis=1>(x, sizes)\n y = SequenceAt(s, far)\n z = Neg(x)"
    model = parse(f"{HEAD} {CONSTANTS} {{ {body} }}")
    InferShapesPass()(model)
    assert not UnpackSequencesPass()(model).modified


def test_listed_tensors_are_taken_and_joined_directly() -> None:
    body = "s = SequenceConstruct(x, w)\n t = SequenceAt(s, last)\n y = Neg(t)\n"
    assert unpacked(f"{body} z = ConcatFromSequence<axis=1>(s)") == [
        "SequenceConstruct",
        "Neg",
        "Concat",
    ]
    head = HEAD.replace("float[c,d]", "float[c,d,e]")
    stacked = f"{body} z = ConcatFromSequence<axis=1, new_axis=1>(s)"
    assert unpacked(stacked, outputs=head)[-3:] == ["Unsqueeze", "Unsqueeze", "Concat"]
