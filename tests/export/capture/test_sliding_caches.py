"""Sliding windows that go by a tensor do what those of ``transformers`` do by a Python number."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from transformers import MistralConfig, MistralForCausalLM, StaticCache
from transformers.cache_utils import StaticSlidingWindowLayer

import samba_onnx as samba
from samba_onnx.export.capture.caches import register_caches
from samba_onnx.export.capture.sliding_caches import NUMBER, _by_tensor, length_of
from samba_onnx.sessions import SESSION
from tests.versions import needs

WINDOW = 4

pytestmark = needs("transformers", "5.23")  # older ones keep the number in another way


def rows(count: int) -> torch.Tensor:
    return torch.randn(1, 2, count, 3)


def attended(layer: Any, query: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Update a layer; return what each new token sees, as sums over keys and values."""
    length, first = layer.get_mask_sizes(query)
    keys_at = torch.arange(length) + first
    queries_at = (torch.arange(query) + layer.get_seq_length())[:, None]
    seen = ((keys_at <= queries_at) & (keys_at > queries_at - WINDOW)).float()
    new = torch.Generator().manual_seed(int(layer.get_seq_length()))
    keys, values = layer.update(*(torch.randn(1, 2, query, 3, generator=new) for _ in range(2)))
    return seen @ keys, seen @ values


@pytest.mark.parametrize("before", range(1, 2 * WINDOW + 1))
@pytest.mark.parametrize("query", [1, 2, WINDOW, WINDOW + 3])
def test_what_tokens_see_and_what_is_kept(before: int, query: int) -> None:
    theirs: Any = StaticSlidingWindowLayer(max_cache_len=32, sliding_window=WINDOW)
    theirs.update(rows(before), rows(before))
    ours: Any = object.__new__(_by_tensor(StaticSlidingWindowLayer))
    vars(ours).update(copy.deepcopy(vars(theirs)))
    ours.cumulative_length = length_of(theirs)
    for count in (query, 1, 1):
        for made, expected in zip(attended(ours, count), attended(theirs, count), strict=True):
            # Sums of at most four numbers, in another order.
            torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)
        kept = min(before + query, WINDOW)
        assert torch.equal(ours.keys[:, :, :kept], theirs.keys[:, :, :kept])
        assert torch.equal(ours.values[:, :, :kept], theirs.values[:, :, :kept])
        assert int(ours.get_seq_length()) == theirs.get_seq_length()


def mistral() -> MistralForCausalLM:
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=99,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=WINDOW,
        initializer_range=0.3,
    )
    return MistralForCausalLM(config).eval()


def test_a_prompt_beyond_the_window_counts_all_its_tokens() -> None:
    register_caches()
    cache = StaticCache(mistral().config, max_cache_len=16)
    cache.update(torch.randn(1, 2, 7, 8), torch.randn(1, 2, 7, 8), 0)
    leaves, spec = pytree.tree_flatten(cache)
    assert int(leaves[2]) == 7
    again = pytree.tree_unflatten(leaves, spec)
    assert type(again.layers[0]) is StaticSlidingWindowLayer
    assert getattr(again.layers[0], NUMBER) == 7
    with FakeTensorMode() as mode:
        captured = pytree.tree_unflatten([mode.from_tensor(leaf) for leaf in leaves], spec)
    assert type(captured.layers[0]) is _by_tensor(StaticSlidingWindowLayer)
    assert pytree.tree_structure(captured) == spec


@pytest.fixture
def session() -> Iterator[None]:
    SESSION.reset()
    yield
    SESSION.reset()


@pytest.mark.parametrize("prompt", [2, WINDOW, WINDOW + 2])
def test_one_program_goes_on_when_the_window_is_full(
    session: None, prompt: int, tmp_path: Path
) -> None:
    model = mistral()
    ids = torch.arange(5, 5 + prompt)[None]
    options = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
    cache = StaticCache(model.config, max_cache_len=16)
    with torch.no_grad():
        logits = model(ids, past_key_values=cache).logits
    token = logits[:, -1:].argmax(-1)
    made = [*ids[0].tolist(), token.item()]

    def inputs() -> dict[str, Any]:
        place = torch.tensor([[len(made) - 1]])
        mask = torch.ones(1, 16, dtype=torch.int64)
        return {
            "input_ids": token,
            "attention_mask": mask,
            "position_ids": place,
            "past_key_values": cache,
        }

    samba.from_torch_model_(model)
    pef = samba.session.compile(model, inputs(), output=tmp_path / "token.pef")
    outputs = samba.utils.trace_graph(model, inputs(), pef=pef)
    while len(made) < len(expected):
        fetched = samba.session.run(inputs(), outputs)
        logits, *state = (samba.to_torch(one).clone() for one in fetched)
        for output, value in zip(outputs[1:], state, strict=True):
            layer, name = output.name.split("__")[-2:]
            field = {"key": "keys", "value": "values"}.get(name, name)
            setattr(cache.layers[int(layer)], field, value)
        token = logits[:, -1:].argmax(-1)
        made.append(token.item())
    assert made == expected
