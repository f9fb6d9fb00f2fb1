"""A causal language model as a function of tensors: tokens and the state of what it has read.

What ``generate`` of transformers does in Python between two tokens is done here by tensors: a state of
fixed shapes comes in and goes out. It is a ``StaticCache``, with windows and recurrent states where the
model has such; or what the model returns beside its logits, if that is made of tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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

__all__ = ["Decoder", "Reading", "suitable_reading"]

_CACHES: Final = ("past_key_values", "cache_params")
"""Arguments for a ``Cache``, as different families call it."""
_INSTEAD: Final = "compile its forward for texts of one length, and run that for every token"
_LINES: Final = ((5, 3, 8, 6, 4), (7, 2, 9))
"""Prompts of a rehearsal, of two lengths so that one is padded."""
_COUNT: Final = 3
"""Tokens of a rehearsal: the first follows the prompt, two follow the state."""
_ROUNDING: Final = {torch.float64: 1e-6, torch.float32: 1e-3}
_COARSE: Final = 5e-2
"""How far logits may be off, as a part of the largest: sums are in another order, which the types of 16
bits feel. A position or a mask that is wrong costs about as much as the logits are large."""


@dataclass(frozen=True)
class Reading:
    """How a model is told what is padding, and what it keeps of what it has read."""

    prompt_mask: str = "tokens"
    """Length of the mask beside a prompt: its tokens, the rows of the cache, or none."""
    token_mask: str = "rows"
    """That of the mask beside a single token."""
    pads: bool = True
    """Whether padding in front of a prompt changes nothing."""


_READINGS: Final = (
    # Attention, alone or with recurrent layers, which mask the tokens themselves.
    Reading(),
    # Biases by distance are computed from the mask, and added to all rows.
    Reading("rows"),
    # Recurrent states need no mask once the prompt is read.
    Reading("tokens", ""),
    Reading("", ""),
)


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
        self._known = inspect.signature(model.forward).parameters
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
        known = {name: value for name, value in keywords.items() if name in self._known}
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
            with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
                self.learn(tokens, padding)
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise UsageError(
                f"{self._name} computes in Python with values of tensors, such as how many tokens were "
                f"read, which no compiled program can follow; {_INSTEAD}"
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
        state = [torch.empty_like(leaf) if is_fake(leaf) else leaf for leaf in first[0]]
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
        name = next((name for name in _CACHES if name in self._known), "")
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
        return next(name for name in self._states if name not in _CACHES)

    @property
    def _states(self) -> Iterator[str]:
        """Yield what may be a state: arguments that are no input, mask or option."""
        return (name for name in self._known if name in (*_CACHES, "state", "mems"))

    def _state_name(self, outputs: Any) -> str:
        for name in self._states:
            if outputs.get(name) is not None:
                return name
        raise UsageError(
            f"{self._name} returns no state of what it has read beside its logits: it reads the whole "
            f"text for every token; {_INSTEAD}"
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


def _positions(tokens: Tensor, padding: Tensor | None, position: Tensor | None) -> Tensor:
    """Return the position of each token, where padding counts for nothing, as ``generate`` does."""
    batch, length = tokens.shape
    places = torch.arange(length).expand(batch, length)
    if position is not None:
        places = places + position
    return places if padding is None else (places - padding).clamp(min=0)


def suitable_reading(model: PreTrainedModel, rows: int, batch: int) -> Reading:
    """Find out how a model reads, by comparing a few tokens with its own ``generate`` on the host.

    Args:
        model: In evaluation mode. Without values in its weights it is taken for one of the most
            common kind, as there is nothing to compare.
        rows: Tokens that its state will hold: some models go wrong where these are more than were read.
        batch: Texts at a time: some models go wrong with more than one.

    Raises:
        UsageError: It cannot be generated with here, or it would be with other tokens.
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        return Reading()
    longest = max(map(len, _LINES)) + _COUNT - 1
    rows = max(rows, longest)
    refusal: Exception | None = None
    with torch.no_grad():
        expected = [_generated(model, line) for line in _LINES]
        for reading in (replace(one, pads=pads) for pads in (True, False) for one in _READINGS):
            try:
                if _agrees(Decoder(model, rows, reading), expected, batch):
                    return reading
            except Exception as error:  # whatever the model raises when it is called so
                refusal = refusal or error
    if isinstance(refusal, UsageError):
        raise refusal
    reason = "" if refusal is None else f" ({type(refusal).__name__}: {_first_line(refusal)})"
    raise UsageError(
        f"{type(model).__name__} does not continue {batch} texts at a time from a state of fixed size as "
        f"its generate continues one{reason}; try a batch of 1, or {_INSTEAD}"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@dataclass(frozen=True)
class _Expected:
    """What ``generate`` makes of a prompt."""

    line: Sequence[int]
    tokens: Tensor
    logits: Tensor
    """(tokens, vocabulary)."""


def _generated(model: PreTrainedModel, line: Sequence[int]) -> _Expected:
    ids = torch.tensor([list(line)])
    options = {"do_sample": False, "num_beams": 1, "eos_token_id": None, "pad_token_id": 0}
    returned = {"output_logits": True, "return_dict_in_generate": True}
    try:
        made: Any = model.generate(  # type: ignore[operator]  # of a mixin that torch hides
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=_COUNT, **options, **returned
        )
    except Exception as error:  # whatever a model raises that is no model for generating
        raise UsageError(
            f"{type(model).__name__} does not generate by itself: {type(error).__name__}: "
            f"{_first_line(error)}; give a causal language model that does"
        ) from error
    logits = torch.stack([one[0] for one in made.logits])
    tokens = made.sequences[0, len(line) :]
    if not torch.equal(logits.argmax(-1), tokens):
        raise UsageError(
            f"generate of {type(model).__name__} chooses other tokens than the most probable ones: its "
            "generation_config changes logits; set model.generation_config = GenerationConfig()"
        )
    return _Expected(line, tokens, logits)


def _agrees(decoder: Decoder, expected: Sequence[_Expected], batch: int) -> bool:
    """Return whether a decoder's logits are those of ``generate``."""
    together = min(batch, len(expected))
    if not decoder.reading.pads:
        return all(_group_agrees(decoder, [one] * together) for one in expected)
    groups = [expected] if together > 1 else [[one] for one in expected]
    return all(_group_agrees(decoder, group) for group in groups)


def _group_agrees(decoder: Decoder, group: Sequence[_Expected]) -> bool:
    # A batch of one is padded as well: the prompt graph reads as many tokens whatever it is given.
    width = max(map(len, _LINES)) if decoder.reading.pads else len(group[0].line)
    missing = [width - len(one.line) for one in group]
    tokens = torch.tensor(
        [[0] * count + list(one.line) for count, one in zip(missing, group, strict=True)]
    )
    padding = torch.tensor(missing)[:, None] if decoder.reading.pads else None
    # Not by ``prepare``: what torch finds wrong there it also prints.
    decoder.learn(tokens, padding)
    logits, position, *state = decoder(tokens, padding)
    for step in range(_COUNT):
        if not _close(logits, torch.stack([one.logits[step] for one in group])):
            return False
        if step < _COUNT - 1:
            tokens = torch.stack([one.tokens[step : step + 1] for one in group])
            logits, position, *state = decoder(tokens, padding, position, state)
    return True


def _close(found: Tensor, expected: Tensor) -> bool:
    error = (found.double() - expected.double()).abs().max()
    allowed = _ROUNDING.get(found.dtype, _COARSE)
    return bool(error <= allowed * expected.double().abs().max())
