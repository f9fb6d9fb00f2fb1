"""Counted operations of whole architectures against the formulas that their papers state."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from models.cache import cached_onnx
from samba_onnx.passes.timing.node_work import node_flops

PRODUCTS = ("MatMul", "Gemm", "Attention")


def counted(path: Path) -> dict[str, int]:
    """Return operations by operator."""
    found: dict[str, int] = {}
    for node in ir.load(path).graph:
        found[node.op_type] = found.get(node.op_type, 0) + node_flops(node)
    return found


def transformer(batch: int, length: int, width: int, layers: int, feed: int) -> int:
    """Return the operations of matrix products: two per parameter and token, and attention."""
    parameters = layers * (4 * width * width + 2 * width * feed)
    attention = layers * batch * 2 * (2 * length * length * width)
    return 2 * parameters * batch * length + attention


def test_gpt2() -> None:
    found = counted(cached_onnx("gpt2"))
    head = 2 * 2 * 8 * 32 * 100
    biases = 2 * 2 * 8 * (3 * 32 + 32 + 128 + 32)
    products = sum(found.get(name, 0) for name in PRODUCTS)
    assert products == transformer(2, 8, 32, 2, 128) + head + biases


def test_bert() -> None:
    found = counted(cached_onnx("bert"))
    pooler = 2 * 2 * 32 * 32 + 2 * 32
    products = sum(found.get(name, 0) for name in PRODUCTS)
    assert products == transformer(2, 8, 32, 2, 64) + pooler


def test_other_operators_are_a_small_part() -> None:
    # In the full GPT-2 this share falls below a percent; in the tiny one widths are small.
    found = counted(cached_onnx("gpt2"))
    products = sum(found.get(name, 0) for name in PRODUCTS)
    assert products / sum(found.values()) == pytest.approx(0.95, abs=0.05)
