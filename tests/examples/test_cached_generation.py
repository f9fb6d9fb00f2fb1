"""Text that is generated with a cache on the device is that of a model that reads all of it again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.examples.launching import launch

pytestmark = pytest.mark.slow

PROMPTS = [[5, 7, 9], [3, 1, 4, 1, 5, 9]]
COUNT = 12
SIZES = ("-b", len(PROMPTS), "--max-prompt", 6, "--max-length", 18)


def plain_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=18,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()


def sampled(temperature: float) -> list[list[int]]:
    """Read each text from its beginning for every token of it."""
    model = plain_model()
    random = torch.Generator().manual_seed(0)
    texts = [list(prompt) for prompt in PROMPTS]
    for _ in range(COUNT):
        numbers = torch.rand(len(PROMPTS), 1, generator=random)
        for text, number in zip(texts, numbers, strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([text])).logits[0, -1]
            cumulative = (logits / temperature).softmax(-1).cumsum(-1)
            text.append(int(torch.searchsorted(cumulative, number, right=True)))
    return texts


def greedy(end: int | None = None) -> list[list[int]]:
    texts = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        made = plain_model().generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=COUNT,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=0,
        )
        texts.append(made[0].tolist())
    return texts


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cached")
    words = ("compile", "--inference", *SIZES, "--pef-name", "llama")
    printed = launch("cached_generation.py", *words, folder=folder)
    assert printed == "out/llama/llama.pef\n"
    return folder


def run(work: Path, *words: object) -> list[list[int]]:
    prompts = [" ".join(map(str, prompt)) for prompt in PROMPTS]
    told = ("--pef", "out/llama/llama.pef", "--max-new-tokens", COUNT, "--prompts", *prompts)
    printed = launch("cached_generation.py", "run", "--inference", *told, *words, folder=work)
    return [[int(word) for word in line.split()] for line in printed.splitlines()]


def test_greedy_text_ends_where_it_ends_in_transformers(work: Path) -> None:
    end = greedy()[0][8]
    assert run(work, "--end", end) == greedy(end)


def test_text_is_drawn_from_the_same_probabilities(work: Path) -> None:
    assert run(work, "--temperature", 1.5) == sampled(1.5)
