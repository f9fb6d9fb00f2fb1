"""Models state any size: a rule gives up before it allocates what they ask for."""

from __future__ import annotations

import pytest

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError
from samba_onnx.passes.rewrites.legalisation.bounds import MOST, refuse_large
from tests.passes.rewrites.legalisation.legalising import refusal

HUGE = 1 << 40
LARGE = "a constant of"


@pytest.mark.parametrize(
    "text",
    [
        f'g (float[4] x) => (float[a] y) <int64[2] p = {{0, {HUGE}}}> {{ y = Pad<mode="edge">(x, p) }}',
        f"g (float[1,1,4,4] x) => (float[1,1,{HUGE},4] y) <int64[4] s = {{1, 1, {HUGE}, 4}}> {{ y = Resize(x, , , s) }}",
        f'g (float[1,1,4,{1 << 20}] x) => (float[1,1,4,{1 << 21}] y) <int64[4] s = {{1, 1, 4, {1 << 21}}}> {{ y = Resize<mode="linear">(x, , , s) }}',
        f"g (float[{HUGE}] x) => (float[{HUGE}] y) <int64 axis = {{0}}> {{ y = CumSum<reverse=1>(x, axis) }}",
        f"g (float[{HUGE},{HUGE}] x, int64 k) => (float[{HUGE},{HUGE}] y) {{ y = Trilu(x, k) }}",
        f"g (int64[3] x, float[2] v) => (float[3,{HUGE}] y) <int64 d = {{{HUGE}}}> {{ y = OneHot(x, d, v) }}",
        f"g (float[{HUGE}] x) => (int64[1] y) {{ y = ArgMax<axis=0, select_last_index=1>(x) }}",
        f'g (float[{HUGE},{HUGE}] x) => (float[{HUGE}] y) {{ y = Einsum<equation="ii->i">(x) }}',
    ],
)
def test_what_would_take_too_much_space_stays(text: str) -> None:
    assert LARGE in refusal(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "g (float[2,3] x) => (float[2,9] y) <int64[1] k = {9}> { y, i = TopK(x, k) }",
            "it takes 9 of 3 elements",
        ),
        (
            "g (float[2,3] x) => (float[2,3] y) <int64[2] k = {1, 2}> { y, i = TopK(x, k) }",
            "what it states contradicts its operator",
        ),
        (
            'g (float[4] x) => (float[4] y) <int64[3] p = {1, 1, 1}> { y = Pad<mode="edge">(x, p) }',
            "it states 3 pads for 1 axes",
        ),
    ],
)
def test_what_contradicts_its_operator_stays(text: str, reason: str) -> None:
    assert reason in refusal(text)


def test_a_constant_may_have_as_many_elements_as_there_may_be() -> None:
    refuse_large(1, MOST)
    with pytest.raises(CannotExpandError, match="more than"):
        refuse_large(1, MOST + 1)
