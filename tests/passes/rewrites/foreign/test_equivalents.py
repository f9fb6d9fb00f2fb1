from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_computes,
    assert_expands,
    assert_stays,
    one_node,
)
from tests.versions import needs

MATRIX, OTHER = numbers(2, 3, 4), numbers(2, 3, 4, seed=1)


def integer(*items: Any, dtype: Any = np.int64) -> Any:
    return np.array(items[0] if len(items) == 1 else items, dtype)


@pytest.mark.parametrize(
    ("operator", "operands", "attributes"),
    [
        ("SampleOp", [MATRIX], {}),
        ("Trilu", [MATRIX], {}),
        ("Trilu", [MATRIX, integer(1)], {"upper": 0}),
        # Older ones crash.
        pytest.param(
            *("ExpandDims", [MATRIX, integer(-1, dtype=np.int32)], {}),
            marks=needs("onnxruntime", "1.28"),
        ),
        pytest.param(
            *("ExpandDims", [MATRIX, integer(1, dtype=np.int32)], {}),
            marks=needs("onnxruntime", "1.28"),
        ),
        ("GatherND", [MATRIX, integer([[0, 1], [1, 2]], dtype=np.int32)], {}),
        ("GatherND", [MATRIX, integer([[0, 1], [1, 2]])], {}),
        ("Pad", [MATRIX, integer(0, 1, 0, 2, 0, 0)], {}),
        ("Pad", [MATRIX, integer(0, 1, 0, 2, 0, 0), np.array([0.5], np.float32)], {}),
        ("Range", [np.float32(1).reshape(()), np.float32(5).reshape(())], {}),
        ("Range", [integer(7), integer(-2), integer(-3)], {}),
        ("UnfoldTensor", [MATRIX], {"dim": 1, "size": 2, "step": 1}),
        ("UnfoldTensor", [numbers(2, 7)], {"size": 3, "step": 2}),
        # squares of differences lose digits where rows are alike
        ("CDist", [numbers(3, 8), numbers(4, 8, seed=1)], {"metric": "euclidean"}),
        ("CDist", [numbers(3, 8), numbers(4, 8, seed=1)], {}),
    ],
)
def test_operators_that_onnx_has_nearly_so(
    operator: str, operands: list[Any], attributes: dict[str, Any]
) -> None:
    constants = tuple(range(0 if operator == "Range" else 1, len(operands)))
    if operator == "CDist":
        constants = ()
    proto = one_node(MICROSOFT, operator, operands, ["y"], constants=constants, **attributes)
    assert_expands(proto, operands, rtol=1e-4, atol=1e-4 if operator == "CDist" else 0)


@pytest.mark.parametrize(
    ("operator", "operands", "expected"),
    [
        ("BiasAdd", [MATRIX, numbers(4), OTHER], MATRIX + numbers(4) + OTHER),
        ("BiasDropout", [MATRIX, numbers(4), OTHER], MATRIX + numbers(4) + OTHER),
        ("BiasDropout", [MATRIX, numbers(4)], MATRIX + numbers(4)),
        ("BitmaskBiasDropout", [MATRIX, numbers(4)], MATRIX + numbers(4)),
        ("BitmaskDropout", [MATRIX], MATRIX),
        ("TorchEmbedding", [numbers(5, 3), integer([[0, 4], [2, 2]])],
         numbers(5, 3)[[[0, 4], [2, 2]]]),
    ],
)  # fmt: skip
def test_operators_without_a_kernel(operator: str, operands: list[Any], expected: Any) -> None:
    proto = one_node(MICROSOFT, operator, operands, ["y"])
    assert_computes(proto, operands, expected)


@pytest.mark.parametrize(
    ("operator", "operands", "constants", "reason"),
    [
        ("ExpandDims", [MATRIX, integer(1, dtype=np.int32)], (), "its axis 'x1' is not constant"),
        ("Pad", [MATRIX, integer(0, 1, 0, 2, 0, 0)], (), "its sizes 'x1' is not constant"),
        (
            "BitmaskDropout",
            [MATRIX, None, np.array(True)],
            (2,),
            "BitmaskDropout is not expanded: it drops values at random, in training mode",
        ),
        (
            "BitmaskDropout",
            [MATRIX, None, np.array(True)],
            (),
            "training mode 'x2' is not constant",
        ),
    ],
)
def test_what_is_known_when_it_runs_only_stays(
    operator: str, operands: list[Any], constants: tuple[int, ...], reason: str
) -> None:
    assert_stays(one_node(MICROSOFT, operator, operands, ["y"], constants), reason)
