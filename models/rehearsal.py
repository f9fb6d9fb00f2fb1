"""A rehearsal on the host: how a model is to be read, so that it continues texts as its own ``generate`` does."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PreTrainedModel, StaticCache

from models.decoding import CACHES, INSTEAD, Decoder, Reading
from samba_onnx.errors import UsageError

__all__ = ["suitable_reading"]

_LINES: Final = ((5, 3, 8, 6, 4), (7, 2, 9))
"""Prompts of a rehearsal, of two lengths so that one is padded."""
_COUNT: Final = 3
"""Tokens of a rehearsal: the first follows the prompt, two follow the state."""
_ROUNDING: Final = {torch.float64: 1e-6, torch.float32: 1e-3}
_COARSE: Final = 5e-2
"""How far logits may be off, as a part of the largest: sums are in another order, which the types of 16
bits feel. A position or a mask that is wrong costs about as much as the logits are large."""
_READINGS: Final = (
    # Attention, alone or with recurrent layers, which mask the tokens themselves.
    Reading(),
    # Biases by distance are computed from the mask, and added to all rows.
    Reading("rows"),
    # Recurrent states need no mask once the prompt is read.
    Reading("tokens", ""),
    Reading("", ""),
)


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
                decoder = Decoder(model, rows, reading)
                if _agrees(decoder, expected, batch):
                    _refuse_pieces(decoder)
                    return reading
            except Exception as error:  # whatever the model raises when it is called so
                refusal = refusal or error
    if isinstance(refusal, UsageError):
        raise refusal
    reason = "" if refusal is None else f" ({type(refusal).__name__}: {_first_line(refusal)})"
    raise UsageError(
        f"{type(model).__name__} does not continue {batch} texts at a time from a state of fixed size as "
        f"its generate continues one{reason}; try a batch of 1, or {INSTEAD}"
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


def _refuse_pieces(decoder: Decoder) -> None:
    """Refuse a model that makes other tokens of a text beyond its window when it reads it in two pieces.

    The cache of some keeps a window while their attention has none, so that a prompt sees in one piece what is
    dropped in two. A longer prompt than the prompt graph has is read in pieces.

    Raises:
        UsageError: The model is such.
    """
    window = _longest_window(decoder)
    if not window:
        return
    line = list(itertools.islice(itertools.cycle(_LINES[0]), window + _COUNT))
    expected, tokens = _generated(decoder.model, line), torch.tensor([line])
    padding = torch.zeros(1, 1, dtype=torch.int64) if decoder.reading.pads else None
    try:
        # One token fills the window, and the next ones move it: some caches go wrong in between.
        first = window - 1
        decoder.learn(tokens[:, :first], padding)
        logits, position, *state = decoder(tokens[:, :first], padding)
        for place in range(first, len(line)):
            step = tokens[:, place : place + 1]
            logits, position, *state = decoder(step, padding, position, state)
        if _close(logits, expected.logits[:1]):
            return
        reason = ""
    except Exception as error:  # whatever the model raises beyond its window
        reason = f" ({type(error).__name__}: {_first_line(error)})"
    raise UsageError(
        f"{type(decoder.model).__name__} does not continue a text that is longer than its window of {window} "
        f"tokens as its generate does, which reads it in one piece{reason}; give the generator at most "
        f"{window + 1} rows, or {INSTEAD}"
    )


def _longest_window(decoder: Decoder) -> int:
    """Return how many tokens the longest window of a cache keeps that is shorter than texts can be; or 0."""
    config: Any = decoder.model.config.get_text_config(decoder=True)
    if not any(name in decoder.known for name in CACHES):
        return 0
    layers = StaticCache(config, max_cache_len=decoder.rows).layers
    lengths = (getattr(layer, "max_cache_len", 0) for layer in layers)
    return max((length for length in lengths if 1 < length <= decoder.rows - _COUNT), default=0)


def _close(found: Tensor, expected: Tensor) -> bool:
    error = (found.double() - expected.double()).abs().max()
    allowed = _ROUNDING.get(found.dtype, _COARSE)
    return bool(error <= allowed * expected.double().abs().max())
