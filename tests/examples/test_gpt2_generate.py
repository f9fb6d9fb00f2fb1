"""``generate`` of transformers makes the same text, whoever computes its logits."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, set_seed

from tests.examples.launching import launch

PEF = "out/generate/generate.pef"
SIZES = ("--n-embd", 16, "--n-layer", 2, "--n-head", 2, "--max-seq-length", 12, "-b", 2)
PROMPTS = [[4, 5, 6], [7, 8]]


def plain_model() -> GPT2LMHeadModel:
    """Weights so large that the most probable token is so by far."""
    torch.manual_seed(5)
    config = GPT2Config(
        vocab_size=24,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=12,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a PEF, and with a checkpoint of transformers."""
    folder = tmp_path_factory.mktemp("generate")
    torch.save(plain_model().state_dict(), folder / "plain.pt")
    words = ("compile", "--inference", *SIZES, "--pef-name", "generate")
    launch("gpt2_generate.py", *words, folder=folder)
    return folder


def eager(prompts: list[list[int]], seed: int, options: Mapping[str, Any]) -> list[list[int]]:
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    model = plain_model()
    set_seed(seed)
    text = model.generate(ids, attention_mask=mask, max_new_tokens=7, pad_token_id=0, **options)
    answer: list[list[int]] = text.tolist()
    return answer


def test_greedy_text_in_this_process(
    run_here: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(plain_model().state_dict(), "plain.pt")
    run_here(
        "gpt2_generate.py", "compile", "--inference", *SIZES, "-b", 1, "--pef-name", "generate"
    )
    capsys.readouterr()
    told = ("--checkpoint", "plain.pt", "--max-new-tokens", 7, "--prompts", "4 5 6")
    run_here("gpt2_generate.py", "run", "--inference", *SIZES, "-b", 1, "--pef", PEF, *told)
    assert ast.literal_eval(capsys.readouterr().out) == eager(PROMPTS[:1], 0, {})[0]


@pytest.mark.parametrize(
    ("words", "prompts", "options"),
    [
        pytest.param((), PROMPTS, {}, id="greedy"),
        pytest.param(
            ("--sample", "--temperature", 1.7, "--seed", 3),
            PROMPTS,
            {"do_sample": True, "temperature": 1.7},
            id="sampled",
        ),
        pytest.param(("--num-beams", 2), PROMPTS[:1], {"num_beams": 2}, id="beams"),
    ],
)
def test_the_text_is_that_of_eager_torch(
    work: Path, words: tuple[Any, ...], prompts: list[list[int]], options: dict[str, Any]
) -> None:
    texts = [" ".join(map(str, prompt)) for prompt in prompts]
    told = ("--checkpoint", "plain.pt", "--max-new-tokens", 7, *words, "--prompts", *texts)
    printed = launch(
        "gpt2_generate.py", "run", "--inference", *SIZES, "--pef", PEF, *told, folder=work
    )
    tokens = [ast.literal_eval(line) for line in printed.splitlines()]
    assert tokens == eager(prompts, 3 if "--seed" in words else 0, options)
    assert len({*tokens[0][-7:]}) > 2  # of a model that repeats itself, nothing could be told
