"""Two implementations of one mask: in numpy, and in operators of onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from samba_onnx.runtime.engine.reference.dropout import dropout_mask
from tests.runtime.engine.lowerings.test_dropout_masks import maker


@pytest.mark.parametrize("shape", [(), (0, 3), (5, 7, 11), (33000,), (3, 65536)])
@pytest.mark.parametrize("stream", [0, 3])
def test_both_engines_make_the_same_masks(shape: tuple[int, ...], stream: int) -> None:
    make = maker(shape, stream)
    for rate, seed in ((0.0, 0), (0.3, 1), (0.5, 2**31 - 1), (0.9, -7), (1.0, 5)):
        mask = dropout_mask(np.float32(rate), seed, list(shape), stream)
        np.testing.assert_array_equal(mask, make(rate, seed))
