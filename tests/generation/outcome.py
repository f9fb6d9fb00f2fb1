"""What generating text with one family came to, held against ``generate`` of ``transformers``."""

from __future__ import annotations

import dataclasses
import logging
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import StaticCache

from models.generation import Generator, Sizes
from samba_onnx.errors import SambaError
from samba_onnx.sessions import SESSION
from tests.generation.families import WINDOW, build

__all__ = ["COUNT", "LENGTHS", "SIZES", "Outcome", "measure"]

SIZES = Sizes(batch=2, prompt=8, rows=32)
LENGTHS = (6, 11)
"""Of prompts: one is padded by the prompt graph, one goes on in the token graph."""
COUNT = 12
"""Tokens to generate: all texts end more than a window behind their beginning."""
_LONGEST = 300
_TIE = 1e-4
"""Two logits this near, as a part of the largest, may change places by rounding."""


@dataclass(frozen=True)
class Outcome:
    """What became of one family."""

    result: str
    """``equal``, ``refused``, ``differs`` or ``not built``."""
    state: str = ""
    """Which kinds of layers keep what was read."""
    batch: int = 0
    """Texts at a time."""
    padded: bool = False
    """Whether prompts of two lengths were padded on the left, to one batch where there are several."""
    margin: float = field(default=0.0, compare=False)
    """By how much the most probable token is so, at least, as a part of the largest logit."""
    reason: str = field(default="", compare=False)
    """The sentence, where it is not equal; words may change."""

    def as_json(self) -> dict[str, Any]:
        """Return the outcome without what is false, zero or empty."""
        fields = dataclasses.asdict(self).items()
        return {name: value for name, value in fields if value}


def measure(family: str, folder: Path) -> Outcome:
    """Build a family's model, generate with it and compare.

    Args:
        family: Its type.
        folder: Where the PEF goes.
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    SESSION.reset()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _measured(family, folder)
    finally:
        SESSION.reset()
        logging.disable(before)


def _measured(family: str, folder: Path) -> Outcome:
    try:
        model = build(family)
        config = model.config.get_text_config(decoder=True)
        vocabulary = config.vocab_size
    except Exception as error:  # whatever a constructor raises of settings that do not fit
        return Outcome("not built", reason=f"{type(error).__name__}: {_sentence(error)}")
    state = _state(config)
    try:
        made = _made(family, prompts(vocabulary), SIZES, folder)
    except SambaError as error:
        refusal = _sentence(error)
        try:
            # Some families go wrong in transformers itself with several texts at a time.
            made = _made(family, prompts(vocabulary), replace(SIZES, batch=1), folder)
        except SambaError:
            return Outcome("refused", state, reason=refusal)
    expected = {line: _generated(model, line) for line in made.texts}
    margin = min(one.margin for one in expected.values())
    equal = all(made.texts[line] == one.tokens for line, one in expected.items())
    reason = "" if equal else "other tokens" + (", behind a tie" if margin < _TIE else "")
    result = "equal" if equal else "differs"
    return Outcome(result, state, made.batch, made.padded, margin, reason)


def prompts(vocabulary: int) -> list[tuple[int, ...]]:
    """Return prompts of all lengths, without the first tokens, which are for ends and padding."""
    return [
        tuple((7 * place + 5 * length) % (vocabulary - 3) + 3 for place in range(length))
        for length in LENGTHS
    ]


@dataclass(frozen=True)
class _Made:
    """Texts by the prompt, and how they were made."""

    texts: dict[tuple[int, ...], list[int]]
    batch: int
    padded: bool


def _made(family: str, lines: Sequence[tuple[int, ...]], sizes: Sizes, folder: Path) -> _Made:
    SESSION.reset()
    generator = Generator(build(family), sizes, greedy=True)
    generator.load(generator.compile(folder / f"batch-{sizes.batch}.pef"))
    if generator.pads:
        batches = [lines] if sizes.batch == len(lines) else [[line] for line in lines]
    else:
        # Without padding, a batch is of prompts of one length, none shorter than the prompt graph.
        longest = max(lines, key=len)
        batches = [[longest[:count]] * sizes.batch for count in (len(longest), sizes.prompt + 1)]
    texts: dict[tuple[int, ...], list[int]] = {}
    for batch in batches:
        texts |= zip(map(tuple, batch), generator.generate(batch, COUNT), strict=True)
    return _Made(texts, sizes.batch, generator.pads)


@dataclass(frozen=True)
class _Text:
    tokens: list[int]
    margin: float


def _generated(model: PreTrainedModel, prompt: Sequence[int]) -> _Text:
    """Return what transformers makes of a prompt by itself, and how far the nearest other token was."""
    ids = torch.tensor([list(prompt)])
    made: Any = model.generate(  # type: ignore[operator]  # of a mixin that torch hides
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=COUNT,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    logits = torch.stack([one[0] for one in made.logits])
    best = logits.topk(2).values
    margins = (best[:, 0] - best[:, 1]) / logits.abs().amax(1)
    return _Text(made.sequences[0].tolist(), float(margins.min()))


def _state(config: Any) -> str:
    """Return which kinds of layers a cache of this configuration has."""
    try:
        layers = StaticCache(config, max_cache_len=SIZES.rows).layers
    except Exception:  # of families that transformers has no static cache for
        return ""
    names = {
        type(layer).__name__ for layer in layers if getattr(layer, "max_cache_len", 0) != WINDOW
    }
    windows = any(getattr(layer, "max_cache_len", 0) == WINDOW for layer in layers)
    kinds = ["window"] * windows
    kinds += ["rows"] * any("Static" in name for name in names)
    kinds += ["states"] * any("Linear" in type(layer).__name__ for layer in layers)
    return ", ".join(kinds)


def _sentence(error: Exception) -> str:
    """Return the first line of an error, without the places of temporary files."""
    text = re.sub(r"(?<!\w)/\S*/(?=[^/\s]+)", "", str(error)).partition("\n")[0]
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
