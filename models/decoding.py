"""A causal language model as a function of tensors: tokens and the state of what it has read.

What ``generate`` of transformers does in Python between two tokens is done here by tensors: a state of
fixed shapes comes in and goes out. It is a ``StaticCache``, with windows and recurrent states where the
model has such; or what the model returns beside its logits, if that is made of tensors.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    is_fake,
)
from torch.utils import _pytree as pytree
from transformers import PreTrainedModel, StaticCache
from transformers.cache_utils import Cache

from samba_onnx.errors import UsageError
from samba_onnx.export.capture.caches import register_caches

__all__ = ["CACHES", "INSTEAD", "Decoder", "Reading"]

CACHES: Final = ("past_key_values", "cache_params")
"""Arguments for a ``Cache``, as different families call it."""
INSTEAD: Final = "compile its forward for texts of one length, and run that for every token"


@dataclass(frozen=True)
class Reading:
    """How a model is told what is padding, and what it keeps of what it has read."""

    prompt_mask: str = "tokens"
    """Length of the mask beside a prompt: its tokens, the rows of the cache, or none."""
    token_mask: str = "rows"
    """That of the mask beside a single token."""
    pads: bool = True
    """Whether padding in front of a prompt changes nothing."""


class Decoder(nn.Module):
    """A causal language model under plain tensors."""

    def __init__(
        self,
        model: PreTrainedModel,
        rows: int,
        reading: Reading | None = None,
        *,
        greedy: bool = False,
    ) -> None:
        """Take a model.

        Args:
            model: A causal language model of transformers.
            rows: Tokens that the state can hold.
            reading: How it reads; as most models do when None.
            greedy: Choose the next token in the graph. Otherwise logits are returned.
        """
        super().__init__()
        register_caches()
        self.model = model
        self.rows = rows
        self.greedy = greedy
        self.reading = reading or Reading()
        self.known = inspect.signature(model.forward).parameters
        self._structure: Any = None
        self._shapes: tuple[torch.Size, ...] = ()

    def forward(
        self,
        tokens: Tensor,
        padding: Tensor | None = None,
        position: Tensor | None = None,
        state: Sequence[Tensor] = (),
    ) -> tuple[Tensor, ...]:
        """Read tokens.

        Args:
            tokens: int64, (batch, tokens) of a prompt; or (batch, 1) with a state.
            padding: int64, (batch, 1): how many tokens at the beginning count for nothing; None if none.
            position: int64, (batch, 1): how many tokens were read before; None for a prompt.
            state: What the tokens before left, flat.

        Returns:
            Logits (batch, vocabulary) behind the last token, or if greedy the next token (batch, 1);
            how many tokens were read (batch, 1); behind them the state.
        """
        # A prompt attends to itself: rows for what follows are put behind afterwards.
        rows = tokens.shape[1] if position is None else self.rows
        outputs, kept = self._read(tokens, padding, position, state, rows)
        logits = outputs.logits[:, -1]
        before = torch.zeros_like(tokens[:, :1]) if position is None else position
        front = logits.argmax(-1, keepdim=True) if self.greedy else logits
        leaves = zip(pytree.tree_leaves(kept), self._shapes, strict=True)
        return front, before + tokens.shape[1], *(_widened(leaf, shape) for leaf, shape in leaves)

    def _read(
        self,
        tokens: Tensor,
        padding: Tensor | None,
        position: Tensor | None,
        state: Sequence[Tensor],
        rows: int,
    ) -> tuple[Any, Any]:
        """Run the model; returns its outputs, and the state as the model has it."""
        keywords: dict[str, Any] = {"use_cache": True, "logits_to_keep": 1}
        keywords["attention_mask"] = self._mask(tokens, padding, rows, first=position is None)
        keywords["position_ids"] = _positions(tokens, padding, position)
        keywords |= self._before(position, state, rows)
        known = {name: value for name, value in keywords.items() if name in self.known}
        outputs = self.model(input_ids=tokens, **known)
        return outputs, outputs[self._state_name(outputs)]

    def prepare(self, tokens: Tensor, padding: Tensor | None) -> None:
        """Find out of which tensors the state is, without computing anything.

        Args:
            tokens: A prompt, of which only the shape counts.
            padding: As for ``forward``.

        Raises:
            UsageError: The state is not made of tensors of fixed shapes.
        """
        try:
            # As the graphs are traced afterwards, so that the model reads here as it does there.
            with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True), _as_it_is_compiled():
                self.learn(tokens, padding)
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise UsageError(
                f"{self._name} computes in Python with values of tensors, such as how many tokens were "
                f"read, which no compiled program can follow; {INSTEAD}"
            ) from None

    def learn(self, tokens: Tensor, padding: Tensor | None) -> None:
        """Find out of which tensors the state is, by reading a prompt and a token.

        Args:
            tokens: The prompt.
            padding: As for ``forward``.

        Raises:
            UsageError: The state is not made of tensors of fixed shapes.
        """
        position = torch.full((tokens.shape[0], 1), tokens.shape[1])
        first = self._flat(self._read(tokens, padding, None, (), self.rows)[1])
        self._structure = first[1]
        self._shapes = tuple(leaf.shape for leaf in first[0])
        # Under fake tensors, a number that was a constant so far is unknown from here on.
        # Not empty_like, which computes with constants: it would make one of what the memory held before.
        state = [_unknown(leaf) if is_fake(leaf) else leaf for leaf in first[0]]
        second = self._flat(self._read(tokens[:, :1], padding, position, state, self.rows)[1])
        shapes = [[(leaf.shape, leaf.dtype) for leaf in leaves] for leaves, _ in (first, second)]
        if first[1] != second[1] or shapes[0] != shapes[1]:
            raise UsageError(
                f"{self._name} keeps of what it has read what grows or changes with every token, which no "
                "compiled program can hold: generate with a model whose state has one size"
            )

    @property
    def _name(self) -> str:
        return type(self.model).__name__

    def _flat(self, state: Any) -> tuple[list[Tensor], Any]:
        leaves, structure = pytree.tree_flatten(state)
        if strange := [leaf for leaf in leaves if not isinstance(leaf, Tensor)]:
            raise UsageError(
                f"{self._name} keeps a {type(strange[0]).__name__} of what it has read, which is not made "
                "of tensors: generate with a model whose state is a Cache of transformers or tensors"
            )
        return leaves, structure

    def _before(
        self, position: Tensor | None, state: Sequence[Tensor], rows: int
    ) -> dict[str, Any]:
        """Return the state as an argument of the model."""
        name = next((name for name in CACHES if name in self.known), "")
        if position is not None:
            # In place, as the model writes: what was given stays as it is.
            kept = pytree.tree_unflatten([leaf.clone() for leaf in state], self._structure)
            return {name if isinstance(kept, Cache) else self._own_state: kept}
        if not name:
            return {}
        config: Any = self.model.config.get_text_config(decoder=True)
        return {name: StaticCache(config, max_cache_len=rows)}

    @property
    def _own_state(self) -> str:
        return next(name for name in self._states if name not in CACHES)

    @property
    def _states(self) -> Iterator[str]:
        """Yield what may be a state: arguments that are no input, mask or option."""
        return (name for name in self.known if name in (*CACHES, "state", "mems"))

    def _state_name(self, outputs: Any) -> str:
        for name in self._states:
            if outputs.get(name) is not None:
                return name
        raise UsageError(
            f"{self._name} returns no state of what it has read beside its logits: it reads the whole "
            f"text for every token; {INSTEAD}"
        )

    def _mask(
        self, tokens: Tensor, padding: Tensor | None, rows: int, *, first: bool
    ) -> Tensor | None:
        """Return 1 where a token counts and 0 where it is padding."""
        kind = self.reading.prompt_mask if first else self.reading.token_mask
        if not kind:
            return None
        batch, length = tokens.shape
        places = torch.arange(rows if kind == "rows" else length)
        if padding is None:
            return torch.ones_like(places).expand(batch, -1)
        return (places >= padding).long()


def _widened(leaf: Tensor, shape: torch.Size) -> Tensor:
    """Return a part of a state with zeros behind what it has, in every dimension that is to be larger."""
    missing = [want - have for have, want in zip(leaf.shape, shape, strict=True)]
    if not any(missing):
        return leaf
    return nn.functional.pad(leaf, [count for less in reversed(missing) for count in (0, less)])


@contextlib.contextmanager
def _as_it_is_compiled() -> Iterator[None]:
    """Let ``torch.compiler.is_compiling`` say in a block what it says while torch exports a module."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def _unknown(leaf: Tensor) -> Tensor:
    """Return a tensor without content, of which not even a single number is known."""
    return torch.empty(leaf.shape, dtype=leaf.dtype)


def _positions(tokens: Tensor, padding: Tensor | None, position: Tensor | None) -> Tensor:
    """Return the position of each token, where padding counts for nothing, as ``generate`` does."""
    batch, length = tokens.shape
    places = torch.arange(length).expand(batch, length)
    if position is not None:
        places = places + position
    return places if padding is None else (places - padding).clamp(min=0)
