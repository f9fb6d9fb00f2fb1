from __future__ import annotations

import numpy as np
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.legalisation.legalising import legalised, refusal
from tests.versions import needs

HEAD = "g (float[1,2,4,5] x) => (float[a,b,c,d] y)"


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_padding_with_what_is_there_takes_places(mode: str) -> None:
    body = f'<int64[8] p = {{0, 0, 1, 2, 0, 0, 3, 0}}> {{ y = Pad<mode="{mode}">(x, p) }}'
    assert legalised(f"{HEAD} {body}", [numbers(1, 2, 4, 5)]) == ["Gather", "Gather"]


def test_only_the_axes_that_are_named_are_padded() -> None:
    body = '<int64[2] p = {3, 1}, int64[1] a = {-1}> { y = Pad<mode="edge">(x, p, , a) }'
    assert legalised(f"{HEAD} {body}", [numbers(1, 2, 4, 5)]) == ["Gather"]


@needs("onnxruntime", "1.31")  # older ones read beyond the operand
def test_integers_are_padded_alike() -> None:
    text = """g (int64[6] x) => (int64[a] y) <int64[2] p = {7, 8}> { y = Pad<mode="wrap">(x, p) }"""
    assert legalised(text, [np.arange(6)]) == ["Gather"]


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_a_crop_takes_what_it_leaves(mode: str) -> None:
    body = f'<int64[8] p = {{0, 0, -1, 0, 0, 0, -1, -2}}> {{ y = Pad<mode="{mode}">(x, p) }}'
    assert legalised(f"{HEAD} {body}", [numbers(1, 2, 4, 5)]) == ["Gather", "Gather"]


@pytest.mark.parametrize(
    ("pads", "mode", "reason"),
    [
        ("0, 0, 0, 5, 0, 0, 0, 0", "reflect", "it reflects more than the axis has"),
        ("0, 0, -1, 1, 0, 0, 0, 0", "edge", "it pads and crops at once"),
    ],
)
def test_what_is_not_defined_alike_stays(pads: str, mode: str, reason: str) -> None:
    body = f'<int64[8] p = {{{pads}}}> {{ y = Pad<mode="{mode}">(x, p) }}'
    assert refusal(f"{HEAD} {body}") == f"Pad 'y': {reason}"


def test_pads_that_are_computed_stay() -> None:
    text = 'g (float[4] x, int64[2] p) => (float[a] y) { y = Pad<mode="edge">(x, p) }'
    assert refusal(text) == "Pad 'y': its pads 'p' is not constant"


def test_a_type_that_the_target_lacks_stays() -> None:
    text = 'g (double[4] x) => (double[a] y) <int64[2] p = {1, 1}> { y = Pad<mode="edge">(x, p) }'
    assert refusal(text).startswith("Pad 'y': it would need what the target lacks: Gather")
