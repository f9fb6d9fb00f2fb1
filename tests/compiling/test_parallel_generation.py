"""Cached generation of a Llama on several RDUs: the graphs of ``models/generation.py``, against torch.

Heads of keys and values are cut, in the graph of prompts that fills the cache and in the graph of tokens that
adds a row to it, and no row of the cache is exchanged. Sums are added in another order than torch's: 1e-5.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import samba_onnx as samba
from samba_onnx.compiling.compiler import compile_programs
from samba_onnx.compiling.torch.cached_decoder import Decoder
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.pef.manifest import Cause
from samba_onnx.program.program import Program
from samba_onnx.runtime.parallel_device import ParallelDevice

pytestmark = pytest.mark.slow

BATCH, PROMPT, ROWS, HEADS, KEPT, WIDTH = 2, 6, 16, 8, 4, 4


def decoder() -> Decoder:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=48, hidden_size=HEADS * WIDTH, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=HEADS, num_key_value_heads=KEPT, max_position_embeddings=64,
    )  # fmt: skip
    return Decoder(transformers.LlamaForCausalLM(config).eval(), ROWS)


def program(model: Decoder, name: str, tokens: int, *, cached: bool) -> Program:
    """Return a graph whose cache lies in the regions ``cache0`` to ``cache3``."""
    blank = torch.zeros(BATCH, KEPT, ROWS, WIDTH)
    cache = (tuple((blank.clone(), blank.clone()) for _ in range(2)),) if cached else ()
    position = torch.full((BATCH, 1), PROMPT)
    ids = samba.from_torch_tensor(torch.ones(BATCH, tokens, dtype=torch.int64), name=f"{name}_ids")
    exported = export_inference(model, (ids, position, *cache), name=name).program
    kept = (*exported.inputs[2:], *exported.outputs[1:])
    places = {value: f"cache{number % 4}" for number, value in enumerate(kept)}
    return dataclasses.replace(exported, regions={**exported.regions, **places})


@pytest.mark.parametrize("rdus", [2, 4, 8])
def test_tokens_are_those_of_torch(rdus: int, tmp_path: Path) -> None:
    model = decoder()
    programs = [
        program(model, "prompt", PROMPT, cached=False),
        program(model, "token", 1, cached=True),
    ]
    outputs = [one.outputs[0] for one in programs]
    weights = {
        f"decoder__{name.replace('.', '__')}": value.detach().numpy()
        for name, value in [*model.named_parameters(), *model.named_buffers()]
    }
    ids = torch.randint(0, 48, (BATCH, PROMPT))
    position = torch.full((BATCH, 1), PROMPT)
    with (
        compile_programs(programs, tmp_path / "m.pef", n_chips=rdus) as pef,
        ParallelDevice(pef, threads=1) as device,
        torch.no_grad(),
    ):
        residents = pef.manifest.residents()
        device.load({name: value for name, value in weights.items() if name in residents})
        given = {"prompt_ids": ids.numpy(), "position": position.numpy()}
        logits = device.run(given, [outputs[0]], graph="prompt")[outputs[0]]
        expected, *flat = model(ids, position)
        for _ in range(4):
            np.testing.assert_allclose(logits, expected.numpy(), rtol=1e-5, atol=1e-5)
            ids = expected.argmax(-1, keepdim=True)
            cache = tuple(zip(flat[::2], flat[1::2], strict=True))
            expected, *flat = model(ids, position, cache)
            given = {"token_ids": ids.numpy(), "position": position.numpy()}
            logits = device.run(given, [outputs[1]], graph="token")[outputs[1]]
            position = position + 1
        token = pef.manifest.graphs[1]
        sent = [t for t in token.run_transfers if t.cause is Cause.COLLECTIVE]
        assert len(sent) == 1 + 2 * 2
        # A token's row to each of the others, and no cache.
        assert max(t.bytes for t in sent) <= (rdus - 1) * BATCH * HEADS * WIDTH * 4
        sizes = {region.name: region.bytes for region in pef.manifest.regions}
        # Four heads on eight RDUs are each on two of them.
        own = BATCH * KEPT // min(rdus, KEPT) * ROWS * WIDTH * 4
        assert {sizes[f"cache{n}"] for n in range(4)} == {own}
        recorded = device.ledger.run()
        assert [t.bytes for t in recorded if t.cause is Cause.COLLECTIVE] == [t.bytes for t in sent]


class Filling(torch.nn.Module):
    """Reads prompts and writes their keys and values into buffers, which it never reads."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.model = model
        for number in range(4):
            self.register_buffer(f"cache{number}", torch.zeros(BATCH, KEPT, ROWS, WIDTH))

    def forward(self, ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        logits, *after = self.model(ids, position)
        for own, value in zip(self.buffers(recurse=False), after, strict=True):
            own.copy_(value)
        return logits


@pytest.mark.parametrize("rdus", [2, 4])
def test_a_cache_that_is_only_written_is_exchanged_by_nobody(rdus: int, tmp_path: Path) -> None:
    model = Filling(decoder()).eval()
    ids, position = torch.randint(0, 48, (BATCH, PROMPT)), torch.full((BATCH, 1), PROMPT)
    exported = export_inference(model, (ids, position), name="prompt").program
    root = exported.outputs[0].partition("__")[0]
    members = [*model.named_parameters(), *model.named_buffers()]
    state = {f"{root}__{name.replace('.', '__')}": value.detach() for name, value in members}
    with (
        compile_programs([exported], tmp_path / "m.pef", n_chips=rdus) as pef,
        ParallelDevice(pef, threads=1) as device,
        torch.no_grad(),
    ):
        residents = pef.manifest.residents()
        device.load({name: v.numpy() for name, v in state.items() if name in residents})
        names = dict(zip(exported.inputs, (ids, position), strict=True))
        given = {name: value.numpy() for name, value in names.items()}
        logits = device.run(given, [exported.outputs[0]])[exported.outputs[0]]
        np.testing.assert_allclose(logits, model(ids, position).numpy(), rtol=1e-5, atol=1e-5)
        for number in range(4):
            written = device.read(f"{root}__cache{number}")
            expected = model.get_buffer(f"cache{number}").numpy()
            np.testing.assert_allclose(written, expected, rtol=1e-5, atol=1e-5)
        transfers = pef.manifest.graphs[0].run_transfers
        assert sum(t.cause is Cause.COLLECTIVE for t in transfers) == 1 + 2 * 2
        sizes = {region.name: region.bytes for region in pef.manifest.regions}
        assert sizes[f"{root}__cache0"] == BATCH * KEPT // rdus * ROWS * WIDTH * 4
