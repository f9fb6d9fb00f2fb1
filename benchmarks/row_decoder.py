"""A language model under plain tensors, as the published programs were fitted with: its cache comes in and goes out.

Generators read texts by ``models.decoding``, which asks more of a model and masks padding. The published figures are of
programs without that, so that the modelled ones are planned from this decoder.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

__all__ = ["Cache", "Decoder"]

Cache = tuple[tuple[Tensor, Tensor], ...]
"""Keys and values of every layer, (batch, heads, rows, width of a head)."""


class _Rows:
    """What the layers of a language model are given for their cache."""

    def __init__(self, positions: Tensor, rows: int, before: Cache | None) -> None:
        self.layers: list[tuple[Tensor, Tensor]] = []
        self._positions = positions
        self._rows = rows
        self._before = before

    def update(self, keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Keep a layer's new rows; returns all that it shall attend to."""
        if self._before is None:
            behind = (0, 0, 0, self._rows - keys.shape[2])
            self.layers.append((nn.functional.pad(keys, behind), nn.functional.pad(values, behind)))
            return keys, values
        old_keys, old_values = self._before[layer]
        self.layers.append((self._put(old_keys, keys), self._put(old_values, values)))
        return self.layers[-1]

    def _put(self, old: Tensor, new: Tensor) -> Tensor:
        batch, heads, _, _ = old.shape
        places = (
            torch.arange(batch)[:, None, None],
            torch.arange(heads)[None, :, None],
            self._positions[:, None, :],
        )
        return old.index_put(places, new)


class Decoder(nn.Module):
    """A causal language model under plain tensors: its cache comes in and goes out."""

    def __init__(self, model: PreTrainedModel, rows: int, *, greedy: bool = False) -> None:
        """Take a model of transformers that has its layers' cache through ``update``.

        Args:
            model: Llama, Qwen, Mistral, GPT-2 and the like.
            rows: Of the cache.
            greedy: Choose the next token in the graph. Otherwise logits are returned.
        """
        super().__init__()
        self.model = model
        self.rows = rows
        self.greedy = greedy

    def forward(
        self, tokens: Tensor, position: Tensor, cache: Cache | None = None
    ) -> tuple[Tensor, ...]:
        """Read tokens.

        Args:
            tokens: int64, (batch, prompt), with anything behind the end of a shorter one; or
                (batch, 1) with a cache.
            position: int64, (batch, 1): number of tokens in the prompt; or, with a cache, the row
                that the token gets.
            cache: What tokens before left; None for a prompt.

        Returns:
            Logits (batch, vocabulary); or, if greedy, the next token (batch, 1) and its position
            (batch, 1). Behind them the cache, flat.
        """
        batch, length = tokens.shape
        if cache is None:
            positions = torch.arange(length).expand(batch, length)
            visible = torch.arange(length) <= positions[:, :, None]
            last, behind = position - 1, position
        else:
            positions = position
            visible = torch.arange(self.rows) <= positions[:, :, None]
            last, behind = torch.zeros_like(position), position + 1
        rows = _Rows(positions, self.rows, cache)
        hidden = self.model.base_model(
            input_ids=tokens,
            attention_mask=visible[:, None],
            position_ids=positions,
            past_key_values=rows,
            use_cache=True,
        ).last_hidden_state
        if cache is None:
            hidden = hidden.gather(1, last[:, :, None].expand(batch, 1, hidden.shape[-1]))
        head = self.model.get_output_embeddings()  # type: ignore[no-untyped-call]
        logits = head(hidden)[:, 0]
        flat = [tensor for layer in rows.layers for tensor in layer]
        if self.greedy:
            return logits.argmax(-1, keepdim=True), behind, *flat
        return logits, *flat
