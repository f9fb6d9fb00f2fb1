"""A transposed convolution of a signal is one of a picture of one row."""

from __future__ import annotations

import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.legalisation.legalising import legalised, refusal

SIGNAL = "g (float[2,4,9] x, float[4,3,3] w, float[3] b) => (float[p,q,r] y)"
GROUPS = "g (float[2,4,9] x, float[4,3,3] w, float[6] b) => (float[p,q,r] y)"


@pytest.mark.parametrize(
    ("graph", "attributes"),
    [
        (SIGNAL, ""),
        (SIGNAL, "strides=[2]"),
        (SIGNAL, "strides=[3], pads=[2,0], kernel_shape=[3]"),
        (SIGNAL, "strides=[3], output_padding=[2], pads=[0,1]"),
        (SIGNAL, "dilations=[2], strides=[2]"),
        (SIGNAL, "strides=[2], output_shape=[18]"),
        (SIGNAL, 'strides=[2], output_shape=[18], auto_pad="VALID"'),
        (SIGNAL, 'strides=[2], output_shape=[20], auto_pad="SAME_UPPER"'),
        (SIGNAL, 'strides=[2], auto_pad="SAME_UPPER"'),
        (SIGNAL, 'strides=[2], auto_pad="SAME_LOWER"'),
        (SIGNAL, 'strides=[2], auto_pad="VALID"'),
        (GROUPS, "group=2, strides=[2]"),
    ],
)
def test_a_signal_is_a_picture_of_one_row(graph: str, attributes: str) -> None:
    text = f"{graph} {{ y = ConvTranspose<{attributes}>(x, w, b) }}".replace("<>", "")
    bias = 6 if graph == GROUPS else 3
    # Kernels of the engine for one and for two axes add the same twelve products, maybe in another order.
    found = legalised(
        text, [numbers(2, 4, 9), numbers(4, 3, 3), numbers(bias)], rtol=1e-6, atol=1e-5
    )
    assert found == ["Unsqueeze", "Unsqueeze", "ConvTranspose", "Squeeze"]


def test_the_kernel_of_a_model_gets_its_row_at_once() -> None:
    text = "g (float[1,4,9] x, float[4,3,3] w) => (float[p,q,r] y) { y = ConvTranspose(x, w) }"
    found = legalised(text, [numbers(1, 4, 9)], {"w": numbers(4, 3, 3)}, rtol=1e-6, atol=1e-5)
    assert found == ["Unsqueeze", "ConvTranspose", "Squeeze"]


def test_a_volume_stays() -> None:
    text = (
        "g (float[1,2,3,3,3] x, float[2,1,2,2,2] w) => (float[a,b,c,d,e] y)"
        "{ y = ConvTranspose(x, w) }"
    )
    assert refusal(text) == "ConvTranspose 'y': its operand has 5 dimensions, not 3"
