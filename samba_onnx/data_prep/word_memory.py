"""Token ids of words that were seen before.

A byte-pair tokenizer in the manner of GPT-2 cuts a text into pieces by a pattern, and encodes every
piece by itself. No piece of the patterns below reaches over a space that stands alone between two
other characters: such a space begins a piece, or is one. So a text may be cut there, and what is
remembered of a part is what the tokenizer makes of it anywhere.
"""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import Any

MOST_WORDS = 200_000
"""Words that are remembered at most, about 60 MB; later ones are encoded each time."""

LONGEST_WORD = 64
"""Characters of a word that is remembered: a longer one hardly comes again."""

PATTERNS = frozenset(
    {
        # Llama 3, and GPT-4 before it.
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        # Qwen 2.
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        # GPT-2, written out.
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    }
)
"""Patterns of which it was checked that no piece reaches over a single space."""

_PROCESSORS = frozenset({"ByteLevel", "TemplateProcessing"})
"""Post-processors that only add special tokens at the ends, or only touch offsets."""

_LONE_SPACE = re.compile(r"(?<=\S)(?= \S)")


def splits_at_spaces(backend: str) -> bool:
    """Whether a tokenizer encodes the parts of a text between single spaces one by one.

    Args:
        backend: The tokenizer as JSON of the tokenizers library.

    Returns:
        False, too, where it is not known.
    """
    tokenizer = json.loads(backend)
    model = tokenizer["model"]
    # Case 1: pairs are merged at random, or by a model of another kind.
    if model["type"] != "BPE" or model.get("dropout"):
        return False
    # Case 2: the text is changed before it is cut, other than by composing characters, which
    # nothing does across a space; then added tokens must not be looked for in the changed text.
    normalizer = tokenizer["normalizer"]
    if normalizer is not None:
        written = any(token["normalized"] for token in tokenizer["added_tokens"])
        if normalizer != {"type": "NFC"} or written:
            return False
    # Case 3: it is cut by a pattern that is not known.
    if not _cuts_at_spaces(tokenizer["pre_tokenizer"]):
        return False
    # Case 4: the ids are changed afterwards.
    return all(step["type"] in _PROCESSORS for step in _steps(tokenizer["post_processor"]))


def _steps(part: Any) -> list[Any]:
    """Return the steps of a part of a tokenizer, which may be none, one, or a sequence."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        return list(part.get("processors") or part.get("pretokenizers") or ())
    return [part]


def _cuts_at_spaces(pre_tokenizer: Any) -> bool:
    steps = _steps(pre_tokenizer)
    if not steps or steps[-1]["type"] != "ByteLevel" or steps[-1]["add_prefix_space"]:
        return False
    if len(steps) == 1:
        return bool(steps[0].get("use_regex", True))  # the pattern of GPT-2
    split = steps[0]
    return (
        len(steps) == 2
        and split["type"] == "Split"
        and split["pattern"].get("Regex") in PATTERNS
        and split["behavior"] == "Isolated"
        and not split["invert"]
        and not steps[1].get("use_regex", True)
    )


class _Words(dict[str, list[int]]):
    """Ids by word, filled as words are asked for."""

    def __init__(self, tokenizer: Any, before: str) -> None:
        """Begin empty.

        Args:
            tokenizer: Encodes what is not here.
            before: What stands before every word of these.
        """
        super().__init__()
        self._tokenizer = tokenizer
        self._before = before

    def __missing__(self, word: str) -> list[int]:
        encoding = self._tokenizer.encode(self._before + word, add_special_tokens=False)
        ids: list[int] = encoding.ids
        if len(self) < MOST_WORDS and len(word) <= LONGEST_WORD:
            self[word] = ids
        return ids


class WordMemory:
    """Encodes texts word by word."""

    def __init__(self, tokenizer: Any) -> None:
        """Begin without words.

        Args:
            tokenizer: A ``tokenizers.Tokenizer`` for which ``splits_at_spaces`` holds.
        """
        self._first = _Words(tokenizer, "")
        self._spaced = _Words(tokenizer, " ")
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self._added = re.compile("|".join(map(re.escape, added))) if added else None
        body = tokenizer.encode("a", add_special_tokens=False).ids
        whole = tokenizer.encode("a").ids
        place = next(i for i in range(len(whole)) if whole[i : i + len(body)] == body)
        self._before, self._after = whole[:place], whole[place + len(body) :]

    def encode(self, text: str) -> list[int] | None:
        """Return the ids of a text; None if an added token stands in it, which must be cut out first."""
        if self._added is not None and self._added.search(text):
            return None
        words = text.split()
        spaced = text[:1] == " "
        # Case 1: single spaces and no other space, which is most of all texts.
        if words and " ".join(words) == text[spaced:]:
            first = self._spaced[words[0]] if spaced else self._first[words[0]]
            rest = map(self._spaced.__getitem__, words[1:])
            return [*self._before, *first, *chain.from_iterable(rest), *self._after]
        # Case 2: line breaks and the like stay inside of the parts.
        parts = map(self._first.__getitem__, _LONE_SPACE.split(text))
        return [*self._before, *chain.from_iterable(parts), *self._after]
