"""Programs of published figures, narrow: their matrix products are those that torch counts itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import fidelity_programs
from benchmarks.fidelity_programs import model, planned
from benchmarks.published import PublishedRow, published_row
from samba_onnx.passes.planning.roles import SymbolKind

LLAMA: Mapping[str, int | str] = {
    "model": "llama-3-8b",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
NARROW: Mapping[str, Mapping[str, int | str]] = {
    "sn30/gpt2/o3/1600x6": {"width": 32, "layers": 2, "heads": 4, "batch": 2, "length": 16, "vocabulary": 64},
    "sn30/bert/4": {"width": 32, "layers": 2, "heads": 4, "batch": 2, "length": 16, "vocabulary": 64},
    "sn30/llama-2-7b/prompt": {**LLAMA, "tokens": 8, "batch": 2},
    "sn30/llama-2-7b/token": {**LLAMA, "rows": 16, "batch": 2},
    "sn10/gemm/128": {"size": 32},
}  # fmt: skip


def narrow(name: str) -> PublishedRow:
    return dataclasses.replace(published_row(name), sizes=MappingProxyType(NARROW[name]))


def operations_of_torch(row: PublishedRow) -> int:
    """Let torch count the products of a step, with attention as two, and add the biases that a Gemm adds."""
    whole = model(row)
    module = whole.module.to_empty(device="cpu").float()
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data.zero_()
    added: list[int] = []
    for each in module.modules():
        if hasattr(each, "config"):
            each.config._attn_implementation = "eager"
        if getattr(each, "bias", None) is not None and type(each).__name__ in ("Conv1D", "Linear"):
            each.register_forward_hook(lambda _, __, output: added.append(output.numel()))
    keywords = {
        name: torch.ones(value.shape, dtype=value.dtype if value.dtype == torch.int64 else None)
        for name, value in whole.keywords.items()
    }
    with FlopCounterMode(display=False) as counter:
        result = module(**keywords)
        if whole.optimizers:
            results = result if isinstance(result, tuple) else (result,)
            sum(one.sum() for one in results).backward()
    return int(counter.get_total_flops()) + sum(added)


@pytest.mark.parametrize("name", NARROW)
def test_products_are_those_of_torch(name: str) -> None:
    row = narrow(name)
    manifest = planned(row).manifest
    products = sum(
        s.operator_flops.get("MatMul", 0) + s.operator_flops.get("Gemm", 0)
        for s in manifest.sections
    )
    assert products == operations_of_torch(row)
    assert not manifest.fallbacks


def test_the_cache_stays_on_the_device() -> None:
    manifest = planned(narrow("sn30/llama-2-7b/token")).manifest
    buffers = [
        one for one in manifest.symbols if one.kind is SymbolKind.BUFFER and "__cache_" in one.name
    ]
    assert len(buffers) == 8  # keys and values of two layers, each before and after
    assert {one.symbol for one in manifest.graphs[0].run_transfers} == {
        "tokens",
        "position",
        manifest.graphs[0].outputs[0],
    }


def test_rows_of_one_program_share_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    row = narrow("sn10/gemm/128")
    plan = planned(row)
    monkeypatch.setattr(fidelity_programs, "exported", lambda _: pytest.fail("compiled again"))
    assert planned(dataclasses.replace(row, value=1.0)) is plan
