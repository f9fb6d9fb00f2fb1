"""A language model of transformers as programs that read prompts and tokens, with its cache on the device.

What published figures were measured with, and what ``samba-port tokens`` plans: sizes and types are enough, so that a
model may have more weights than this machine has memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.torch.hugging_face import causal_model
from samba_onnx.compiling.torch.porting import analyze_torch
from samba_onnx.compiling.torch.torch_models import TorchModel
from samba_onnx.errors import ModelError
from samba_onnx.pef.manifest import Manifest

__all__ = ["Cache", "CausalModel", "Decoder", "generation_model"]

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

    def get_seq_length(self, layer: int = 0) -> int:
        """Return how many tokens came before, as far as shapes depend on it: with a cache all that there is room for."""
        del layer  # all have as many
        return 0 if self._before is None else self._rows - 1

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
            rows: Tokens that the cache has room for.
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


class GenerationStep(nn.Module):
    """A language model with its cache in buffers, which reads prompts or one token of each sequence."""

    def __init__(self, decoder: Decoder, cache: Sequence[Tensor], *, prompts: bool) -> None:
        super().__init__()
        self.decoder = decoder
        self._prompts = prompts
        for number, tensor in enumerate(cache):
            self.register_buffer(f"cache_{number}", tensor)

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Return logits (batch, vocabulary) behind tokens (batch, prompt) or (batch, 1)."""
        rows = list(self.buffers(recurse=False))
        # Prompts read no row that was there before.
        before = None if self._prompts else tuple(zip(rows[::2], rows[1::2], strict=True))
        logits, *after = self.decoder(tokens, position, before)
        for old, new in zip(rows, after, strict=True):
            old.copy_(new)
        result: Tensor = logits
        return result


def generation_model(
    name: str, model: PreTrainedModel, *, batch: int, tokens: int, rows: int
) -> TorchModel:
    """Return one of the two programs that generate text: what reads prompts, or what reads a token of each sequence.

    Args:
        name: For people.
        model: A causal language model, with its weights on the meta device.
        batch: Number of sequences.
        tokens: Number that a run reads of each: more than one for prompts, which nothing comes before.
        rows: Tokens that the cache has room for.

    Returns:
        The module in evaluation mode, with its cache as buffers: keys and values of every layer, as
        (batch, heads, rows, width of a head). Inputs are ``tokens`` and ``position``, int64.

    Raises:
        ModelError: The model keeps something else of a text than rows of keys and values.
    """
    model.eval()  # type: ignore[no-untyped-call]
    decoder = Decoder(model, rows)
    inputs = {
        key: torch.empty((batch, width), dtype=torch.int64, device="meta")
        for key, width in (("tokens", tokens), ("position", 1))
    }
    # How many heads a cache has, and how wide they are, configurations state in many ways: the model itself tells.
    try:
        with torch.no_grad(), torch.device("meta"):
            _, *cache = decoder(**inputs)
    except Exception as error:  # whatever modules raise that keep something else
        message = str(error).splitlines()[0][:120] if str(error) else "no message"
        raise _other_cache(name, model, f"{type(error).__name__}: {message}") from error
    # What recurrent layers keep of a text may lie in themselves, where no cache asks for it.
    if not cache:
        raise _other_cache(name, model, "no layer keeps any")
    if any(
        isinstance(value, Tensor) for inner in model.modules() for value in vars(inner).values()
    ):
        raise _other_cache(name, model, "a layer keeps a tensor in itself")
    return TorchModel(name, GenerationStep(decoder, cache, prompts=tokens > 1).eval(), (), inputs)


def _other_cache(name: str, model: PreTrainedModel, reason: str) -> ModelError:
    return ModelError(
        f"{name}: {type(model).__name__} does not keep rows of keys and values, and nothing else, by update() of "
        f"transformers' caches; give an ONNX model with a cache, or generate as examples/generate.py does ({reason})"
    )


class CausalModel:
    """A causal language model of a Hugging Face configuration, which is planned for any sizes."""

    def __init__(self, source: str) -> None:
        """Build the model without values of weights.

        Args:
            source: A ``config.json``, or the folder of one.

        Raises:
            UsageError: transformers is not installed, or the file cannot be read.
            ModelError: It is no configuration of a causal language model.
        """
        self.name, self._model, self.positions = causal_model(source)
        self.window: int | None = getattr(self._model.config, "sliding_window", None)
        """Tokens that some of its layers attend to; None where all attend to all."""

    def plan(self, batch: int, tokens: int, rows: int, options: CompileOptions) -> Manifest:
        """Plan one of its two programs.

        Args:
            batch: Texts at a time.
            tokens: Tokens that a run reads of each.
            rows: Tokens that the cache has room for.
            options: What the user decides.

        Raises:
            ModelError: It cannot be exported.
            OutOfDeviceMemoryError: It does not fit into the target's memory.
        """
        return analyze_torch(self._made(batch, tokens, rows), options=options)

    def cache_bytes(self, batch: int, rows: int) -> int:
        """Return the bytes of the buffers that the cache is.

        Args:
            batch: Texts at a time.
            rows: Tokens that the cache has room for.
        """
        # A program of one token has them as all others do.
        return sum(
            buffer.nbytes for buffer in self._made(batch, 1, rows).module.buffers(recurse=False)
        )

    def _made(self, batch: int, tokens: int, rows: int) -> TorchModel:
        return generation_model(self.name, self._model, batch=batch, tokens=tokens, rows=rows)
