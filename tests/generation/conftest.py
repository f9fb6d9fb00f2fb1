"""A session for every test, and small language models with weights that are always the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from samba_onnx.sessions import SESSION, SambaSession

VOCABULARY = 100
SPREAD = 0.3
"""Deviation of the random weights: large enough that the most probable token is so by far."""


@pytest.fixture(autouse=True)
def session() -> Iterator[SambaSession]:
    SESSION.reset()
    yield SESSION
    SESSION.reset()


def llama() -> PreTrainedModel:
    """Grouped-query attention, rotary positions."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=SPREAD,
    )
    return LlamaForCausalLM(config).eval()


def gpt2() -> PreTrainedModel:
    """Learned positions, a head that shares its matrix with the embedding."""
    torch.manual_seed(2)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=64,
        n_embd=32,
        n_layer=1,
        n_head=4,
        initializer_range=SPREAD,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config).eval()


def qwen() -> PreTrainedModel:
    """Projections with biases, and a shared matrix."""
    torch.manual_seed(3)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        initializer_range=SPREAD,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config).eval()


def continuations(
    build: Callable[[], PreTrainedModel],
    prompts: Sequence[Sequence[int]],
    count: int,
    end: int | None = None,
) -> list[list[int]]:
    """What ``generate`` of transformers makes of each prompt by itself."""
    model = build()
    made = []
    for prompt in prompts:
        ids = torch.tensor([list(prompt)])
        whole = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=0,
        )
        made.append(whole[0].tolist())
    return made
