from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.fold_dequantization import FoldDequantizationPass
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from tests.passes.rewrites.applying import Knows, add_weights, check, numbers, operators, parse

GENERATOR = np.random.default_rng(0)
INT8 = GENERATOR.integers(-128, 128, (6, 4)).astype(np.int8)
UINT8 = GENERATOR.integers(0, 256, (6, 4)).astype(np.uint8)
INT4 = GENERATOR.integers(-8, 8, (6, 4)).astype(ml_dtypes.int4)
INT32 = GENERATOR.integers(-(2**31), 2**31, (6, 4)).astype(np.int32)
PER_COLUMN = np.abs(numbers(4)) + 0.1


def folded(
    weight: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None = None,
    attributes: str = "",
    *,
    modified: bool = True,
) -> ir.Model:
    """Fold, and compare with onnxruntime to the last bit."""
    operands = {"w": weight, "s": scale} | ({} if zero is None else {"z": zero})
    declared = ", ".join(
        f"{ir.DataType.from_numpy(array.dtype).name.lower()}[{','.join(map(str, array.shape))}] {name}"
        for name, array in operands.items()
    )
    model = parse(f"""g (float[2,6] x, {declared}) => (float[2,4] y)
{{ d = DequantizeLinear{attributes}({", ".join(operands)})\n y = MatMul(x, d) }}""")
    add_weights(model, operands)
    model.graph.initializers["w"].meta[WEIGHT] = True
    return check(model, FoldDequantizationPass(Knows("MatMul")), inputs=[numbers(2, 6)], modified=modified)  # fmt: skip


@pytest.mark.parametrize(
    ("weight", "scale", "zero", "attributes"),
    [
        (INT8, np.float32(0.03).reshape(()), None, ""),
        (UINT8, np.float32(0.03).reshape(()), np.uint8(200).reshape(()), ""),
        (INT8, PER_COLUMN, np.array([1, -3, 127, -128], np.int8), ""),
        (UINT8, np.abs(numbers(6)), None, "<axis=0>"),
        (INT8, np.abs(numbers(6)), None, "<axis=-2>"),
        (INT8, np.abs(numbers(3, 4)), GENERATOR.integers(-9, 9, (3, 4)).astype(np.int8), "<axis=0, block_size=2>"),
        (INT4, np.abs(numbers(6, 2)), None, "<axis=1, block_size=2>"),
        (INT4, np.abs(numbers(2, 4)), None, "<axis=0, block_size=4>"),
        (INT32, np.float32(1e-9).reshape(()), None, ""),
    ],
)  # fmt: skip
def test_a_weight_is_written_out(
    weight: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, attributes: str
) -> None:
    model = folded(weight, scale, zero, attributes)
    assert operators(model) == ["MatMul"]
    right = model.graph[0].inputs[1]
    assert right is not None
    assert right.meta[WEIGHT]
    assert isinstance(right.const_value, ir.LazyTensor)


def test_a_target_that_reads_compressed_weights_keeps_them() -> None:
    model = parse("g (int8[6,4] w, float s) => (float[6,4] y) { y = DequantizeLinear(w, s) }")
    add_weights(model, {"w": INT8, "s": np.float32(0.5).reshape(())})
    assert not FoldDequantizationPass(Knows("DequantizeLinear"))(model).modified


def test_activations_are_scaled_at_run_time() -> None:
    model = parse("g (int8[6,4] x, float s) => (float[6,4] y) { y = DequantizeLinear(x, s) }")
    add_weights(model, {"s": np.float32(0.5).reshape(())})
    rewrite = FoldDequantizationPass(Knows())
    assert not rewrite(model).modified
    assert rewrite.refusals.lines() == (
        "DequantizeLinear 'y': what it scales is computed at run time",
    )


def test_one_that_stays_does_not_hide_that_another_was_folded() -> None:
    model = parse("""g (int8[6,4] x, int8[6,4] w, float s) => (float[6,4] y, float[6,4] z)
{ y = DequantizeLinear(w, s)
 z = DequantizeLinear(x, s) }""")
    add_weights(model, {"w": INT8, "s": np.float32(0.5).reshape(())})
    assert FoldDequantizationPass(Knows())(model).modified
