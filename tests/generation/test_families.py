"""Every family of causal language models generates the tokens of ``transformers``, or is refused with a sentence."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import GPTNeoConfig, GPTNeoForCausalLM, OpenAIGPTConfig, OpenAIGPTLMHeadModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from docs.generators.generation import PAGE, page
from models.generation import Generator, Sizes
from samba_onnx.errors import ModelError, UsageError
from tests.generation.families import FAMILIES, build
from tests.generation.outcome import COUNT, LENGTHS, SIZES, Outcome, measure
from tests.generation.table import difference, read, write
from tests.versions import needs

TABLE = read()
SAMPLE = ("mistral", "gemma2", "gpt_oss", "bloom", "falcon", "opt", "mamba", "llama4_text")
"""One of each kind: windows alone and beside rows, biases by distance, several queries to a key, an offset of
positions, states, chunks."""


@pytest.mark.parametrize("family", SAMPLE)
@needs("transformers", "5.23")  # older ones keep their states in other classes
def test_a_family_of_each_kind_generates_equal_tokens(family: str, tmp_path: Path) -> None:
    outcome = measure(family, tmp_path)
    assert outcome.result == "equal", outcome
    assert outcome == TABLE[family]


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", [one for one in FAMILIES if one not in SAMPLE])
@needs("transformers", "5.23")
def test_a_family_generates_as_the_table_says(family: str, tmp_path: Path) -> None:
    changes = difference(measure(family, tmp_path), TABLE.get(family))
    assert not changes, changes


@needs("transformers", "5.23")  # older ones have fewer
def test_the_table_has_every_family_and_no_other() -> None:
    assert set(TABLE) == set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES), (
        "python -m tests.generation adds one"
    )


def test_no_other_family_generates_other_tokens() -> None:
    # Its generate disagrees with itself: of a prompt of five tokens the eighth choice has logits that are 0.3 of the
    # largest away from those of the same text read in one piece, where others, Mistral for one, are within 1e-6.
    differing = [name for name, outcome in TABLE.items() if outcome.result == "differs"]
    assert differing == ["dots3_note_text"]


def test_what_is_refused_has_a_sentence_that_says_what_to_do() -> None:
    words = ("give ", "try ", "compile ", "generate with", "set ", "run ", "choose ", "use ")
    for name, outcome in TABLE.items():
        if outcome.result == "refused":
            assert any(word in outcome.reason for word in words), name
            assert "unknown line" not in outcome.reason, name


def test_equal_tokens_are_no_ties() -> None:
    # Rounding of float32 through two layers is near 1e-6 of the largest logit.
    assert all(one.margin > 1e-5 for one in TABLE.values() if one.result == "equal")


@needs("transformers", "5.23")  # which it names
def test_the_page_is_that_of_the_table() -> None:
    assert PAGE.read_text() == page(TABLE), "python -m docs.generators.generation writes it"


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    row = Outcome("equal", "window, rows", 2, True, 1e-3)
    table = {"b": row, "a": Outcome("refused", reason="why")}
    write(table, tmp_path / "t.json")
    assert read(tmp_path / "t.json") == table
    assert not difference(row, dataclasses.replace(row, margin=2e-3))
    for field, value in (("result", "differs"), ("state", ""), ("batch", 1), ("padded", False)):
        assert "python -m tests.generation" in difference(
            row, dataclasses.replace(row, **{field: value})
        )


def test_a_window_that_is_forgotten_would_be_noticed() -> None:
    model = build("mistral")
    ids = torch.arange(3, 3 + LENGTHS[1])[None]
    options = {"max_new_tokens": COUNT, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    narrow = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    model.config.sliding_window = None
    wide = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    assert not torch.equal(narrow, wide)


def small(config: type, kind: type, **more: object) -> nn.Module:
    torch.manual_seed(0)
    return kind(config(vocab_size=50, **more)).eval()


def test_a_model_without_a_state_is_refused() -> None:
    model = small(OpenAIGPTConfig, OpenAIGPTLMHeadModel, n_embd=16, n_layer=1, n_head=2)
    with pytest.raises(
        UsageError, match=r"OpenAIGPTLMHeadModel returns no state .* compile its forward"
    ):
        Generator(model, Sizes())


def test_a_model_that_takes_the_rows_for_what_was_read_is_refused() -> None:
    # Its local attention counts from the last row that there is, not from the last token.
    model = small(
        GPTNeoConfig,
        GPTNeoForCausalLM,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
        initializer_range=0.3,
    )
    with pytest.raises(UsageError, match="does not continue 1 texts at a time"):
        Generator(model, Sizes())


@needs("transformers", "5.23")
def test_a_window_that_only_the_cache_has_is_refused() -> None:
    # Its masks have no window: a prompt that is read in two pieces sees less of itself than in one.
    with pytest.raises(UsageError, match=r"longer than its window of 8 tokens .* at most 9 rows"):
        Generator(build("moshi"), SIZES)


@needs("transformers", "5.23")
def test_a_text_that_never_leaves_the_window_needs_none() -> None:
    assert Generator(build("moshi"), dataclasses.replace(SIZES, rows=9)).pads


@needs("transformers", "5.23")
def test_a_table_of_tokens_that_grows_with_the_text_is_refused() -> None:
    with pytest.raises(
        ModelError, match=r"decoding\.py:\d+ \(in transformers/.* made longer by how many"
    ):
        Generator(build("gemma4_unified"), SIZES)
