"""Caches of ``transformers``: taken apart into tensors and put together again, kept or left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from transformers import DynamicCache, EncoderDecoderCache, LlamaConfig, StaticCache
from transformers.cache_utils import DynamicSlidingWindowLayer, LinearAttentionLayer

from samba_onnx.errors import InputError, ModelError, UsageError
from samba_onnx.export.capture.caches import has_cache, register_caches
from samba_onnx.export.naming import flat_names
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.tensor.inputs import by_name
from tests.versions import needs

CONFIG = LlamaConfig(
    hidden_size=8, num_attention_heads=2, num_hidden_layers=2, vocab_size=9, intermediate_size=8
)


def filled(cache: Any, layers: int = 2, length: int = 3) -> Any:
    """Return a cache with random keys and values in it."""
    for layer in range(layers):
        cache.update(torch.randn(1, 2, length, 4), torch.randn(1, 2, length, 4), layer)
    return cache


def recurrent() -> Any:
    """Return a cache of states."""
    layer = LinearAttentionLayer()
    layer.update_conv_state(torch.randn(1, 4, 3))
    layer.update_recurrent_state(torch.randn(1, 4, 2))
    cache = DynamicCache()
    cache.layers.append(layer)
    return cache


@pytest.mark.parametrize(
    ("cache", "names"),
    [
        (filled(DynamicCache()), "0__key 0__value 1__key 1__value"),
        (DynamicCache(config=CONFIG), ""),
        (DynamicCache(), ""),
        pytest.param(
            recurrent(),
            "0__conv_states__0 0__recurrent_states__0",
            marks=needs("transformers", "5.23"),  # older ones keep one tensor, not a list
        ),
        (
            filled(StaticCache(CONFIG, max_cache_len=5)),
            "0__key 0__value 0__cumulative_length 1__key 1__value 1__cumulative_length",
        ),
        (
            EncoderDecoderCache(filled(DynamicCache(), 1), filled(DynamicCache(), 1)),
            "self__0__key self__0__value cross__0__key cross__0__value",
        ),
    ],
    ids=["dynamic", "empty", "without layers", "states", "static", "encoder and decoder"],
)
def test_a_cache_is_its_tensors(cache: Any, names: str) -> None:
    register_caches()
    found = dict(flat_names({"past": cache}))
    assert list(found) == [f"past__{name}" for name in names.split()]
    leaves, spec = pytree.tree_flatten(cache)
    again = pytree.tree_unflatten([leaf + 1 for leaf in leaves], spec)
    assert type(again) is type(cache)
    assert pytree.tree_structure(again) == spec
    for old, new in zip(leaves, pytree.tree_leaves(again), strict=True):
        torch.testing.assert_close(new, old + 1)


@pytest.mark.parametrize(
    "cache", [filled(DynamicCache()), EncoderDecoderCache(filled(DynamicCache()), DynamicCache())]
)
def test_what_is_put_together_is_another_cache(cache: Any) -> None:
    register_caches()
    leaves, spec = pytree.tree_flatten(cache)
    twins = [pytree.tree_unflatten(leaves, spec) for _ in range(2)]
    inner = getattr(twins[0], "self_attention_cache", twins[0])
    inner.update(torch.ones(1, 2, 2, 4), torch.ones(1, 2, 2, 4), 0)
    assert [one.get_seq_length() for one in (*twins, cache)] == [5, 3, 3]


def test_a_run_is_given_a_cache_as_it_is() -> None:
    register_caches()
    cache = filled(DynamicCache(), 1)
    given = by_name({"x": X, "past": cache})
    assert list(given) == ["x", "past__0__key", "past__0__value"]
    assert given["past__0__value"] is cache.layers[0].values


def test_a_cache_without_some_of_the_inputs_leaves_no_old_values_in_use() -> None:
    register_caches()
    known = ["x", "past__0__key", "past__0__value", "past__1__key", "past__1__value"]
    assert len(by_name({"x": X, "past": filled(DynamicCache())}, known)) == len(known)
    for cache, missing in ((DynamicCache(), "0__key"), (filled(DynamicCache(), 1), "1__key")):
        with pytest.raises(
            InputError, match=f"'past' of class DynamicCache has no 'past__{missing}'"
        ):
            by_name({"x": X, "past": cache}, known)
    assert list(by_name({"x": X, "past": DynamicCache()}, ["x", "passed__0"])) == ["x"]


def test_settings_of_a_cache_are_part_of_its_structure() -> None:
    register_caches()
    caches = [DynamicCache(), DynamicCache()]
    for cache, window in zip(caches, (4, 5), strict=True):
        cache.layers.append(DynamicSlidingWindowLayer(sliding_window=window))
    first, second = map(pytree.tree_structure, caches)
    assert first != second
    assert first == pytree.tree_structure(caches[0])


def test_an_empty_cache_counts_as_one() -> None:
    assert has_cache(((), {"past": [DynamicCache()]}))
    assert not has_cache(((torch.ones(1),), {"past": None}))


def test_an_offloaded_cache_is_refused() -> None:
    register_caches()
    cache = filled(DynamicCache())
    cache.offloading = True
    with pytest.raises(UsageError, match=r"DynamicCache .* is offloaded"):
        pytree.tree_leaves(cache)


@dataclass
class Result:
    """What a model returns that is no ``ModelOutput``."""

    logits: Tensor
    past: Any
    nothing: Tensor | None = None


class Attending(nn.Module):
    """Adds to a cache, and makes one where it is given none."""

    def __init__(self, *, as_tuple: bool = False) -> None:
        super().__init__()
        self.as_tuple = as_tuple

    def forward(self, x: Tensor, past: Any = None) -> Any:
        cache = DynamicCache() if past is None else past
        keys, values = cache.update(x * 2, x * 3, 0)
        logits = (x @ keys.transpose(-1, -2)) @ values
        return (logits, cache) if self.as_tuple else Result(logits, cache)


X = torch.randn(1, 2, 1, 4)


@pytest.mark.parametrize("as_tuple", [False, True], ids=["dataclass", "tuple"])
def test_a_cache_that_nobody_gave_is_left_out_with_a_note(as_tuple: bool) -> None:
    exported = export_inference(Attending(as_tuple=as_tuple), {"x": X})
    assert len(exported.program.outputs) == 1
    (note,) = exported.program.notes
    assert note.startswith("Attending returns ")
    assert "DynamicCache, which is left out of the program" in note
    assert ("'past'" if not as_tuple else "'past_key_values'") in note


class Caching(nn.Module):
    """Returns a cache and nothing else."""

    def forward(self, x: Tensor) -> Any:
        cache = DynamicCache()
        cache.update(x * 2, x * 3, 0)
        return cache


def test_nothing_but_a_cache_that_nobody_gave_is_refused() -> None:
    with pytest.raises(ModelError, match="Caching returns nothing but a cache, and no cache is"):
        export_inference(Caching(), {"x": X})


@pytest.mark.parametrize("as_tuple", [False, True], ids=["dataclass", "tuple"])
def test_a_cache_among_the_inputs_is_inputs_and_outputs(as_tuple: bool) -> None:
    cache = filled(DynamicCache(), 1)
    exported = export_inference(Attending(as_tuple=as_tuple), {"x": X, "past": cache})
    program = exported.program
    assert program.inputs == ("x", "past__0__key", "past__0__value")
    logits, *present = program.outputs
    assert logits.startswith("attending__matmul__outputs__0" if as_tuple else "attending__logits")
    assert present == ["attending__present__0__key", "attending__present__0__value"]
    assert not program.notes
    assert cache.get_seq_length() == 3, "the user's cache was written to"


def test_an_empty_cache_among_the_inputs_keeps_the_outputs() -> None:
    exported = export_inference(Attending(), {"x": X, "past": DynamicCache()})
    assert exported.program.inputs == ("x",)
    assert exported.program.outputs[1:] == (
        "attending__present__0__key",
        "attending__present__0__value",
    )
    assert not exported.program.notes
