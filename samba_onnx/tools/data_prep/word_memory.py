"""Token ids of words that were seen before.

A byte-pair tokenizer in the manner of GPT-2 cuts a text into pieces by a pattern, and encodes every
piece by itself. No piece of the patterns below reaches over a space that stands alone between two
other characters: such a space begins a piece, or is one. So a text may be cut there, and what is
remembered of a part is what the tokenizer makes of it anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

MOST_CHARACTERS = 2_000_000
"""Characters of words that are remembered, about 80 MB in all; then those are kept that came last."""

WORDS_AT_ONCE = 4000
"""New words that are encoded as one text."""

OTHER_SPACES = frozenset(
    chr(code) for code in range(0x3001) if chr(code).isspace() and chr(code) != " "
)
"""Characters that Python takes for a space, among them all that Unicode does."""

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

_LONE_SPACE = re.compile(r"(?<=\S) (?=\S)")
_PLAIN = re.compile(r"\S(?:[^ ]*\S)?")
_SPACE = "\u0120"
"""What byte-level tokenizers write for a space."""


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
    """Ids by word; a word that is new gets a list that is empty until it is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.new: dict[str, list[int]] = {}

    def __missing__(self, word: str) -> list[int]:
        ids: list[int] = []
        self[word] = self.new[word] = ids
        return ids


class WordMemory:
    """Encodes texts word by word; what is new in many texts is encoded in one go."""

    def __init__(self, tokenizer: Any) -> None:
        """Begin without words.

        Args:
            tokenizer: A ``tokenizers.Tokenizer`` for which ``splits_at_spaces`` holds.
        """
        self._tokenizer = tokenizer
        self._first = _Words()
        """Ids of what a text begins with, where that is no single space."""
        self._spaced = _Words()
        """Ids of a space and a word, by the word."""
        self._characters = 0
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self._added = re.compile("|".join(map(re.escape, added))) if added else None
        vocabulary = tokenizer.get_vocab()
        self._begins_with_space = np.zeros(max(vocabulary.values()) + 1, bool)
        for token, number in vocabulary.items():
            self._begins_with_space[number] = token.startswith(_SPACE)
        body = self._encode("a")
        whole = tokenizer.encode("a").ids
        place = next(i for i in range(len(whole)) if whole[i : i + len(body)] == body)
        self._before, self._after = whole[:place], whole[place + len(body) :]

    def encode(self, texts: Sequence[str]) -> list[list[int] | None]:
        """Return the ids of each text; None if an added token stands in it, which must be cut out first."""
        added = self._added
        cut = [None if added and added.search(text) else _cut(text) for text in texts]
        first, spaced = self._first, self._spaced
        pieces = [
            None
            if words is None
            else [first[words[0]], *map(spaced.__getitem__, islice(words, 1, None))]
            for words in cut
        ]
        self._learn()
        results = [
            None if lists is None else [*self._before, *chain.from_iterable(lists), *self._after]
            for lists in pieces
        ]
        if self._characters > MOST_CHARACTERS:
            self._forget([words for words in cut if words is not None])
        return results

    def _forget(self, cut: list[list[str]]) -> None:
        """Remember nothing but the words of the latest texts: most of those that come often are there."""
        latest = set(chain.from_iterable(islice(words, 1, None) for words in cut))
        self._characters = sum(map(len, latest))
        if self._characters > MOST_CHARACTERS // 2:
            latest, self._characters = set(), 0
        words = _Words()
        words.update((word, self._spaced[word]) for word in latest)
        self._first, self._spaced = _Words(), words

    def _learn(self) -> None:
        """Encode what is new."""
        begins, new = self._first.new, self._spaced.new
        self._first.new, self._spaced.new = {}, {}
        for ids, encoded in zip(begins.values(), self._encode_each([*begins]), strict=True):
            ids += encoded
        # What has another space inside or at its end depends on what follows it.
        plain = [word for word in new if _PLAIN.fullmatch(word)]
        for begin in range(0, len(plain), WORDS_AT_ONCE):
            words = plain[begin : begin + WORDS_AT_ONCE]
            self._learn_in_one(words, [new[word] for word in words])
        others = {word: ids for word, ids in new.items() if not ids}
        encodings = self._encode_each([f" {word}" for word in others])
        for ids, encoded in zip(others.values(), encodings, strict=True):
            ids += encoded
        self._characters += sum(map(len, begins)) + sum(map(len, new))

    def _learn_in_one(self, words: list[str], lists: list[list[int]]) -> None:
        """Encode words as one text, and cut its tokens where a space begins, if that is once a word."""
        ids = self._encode(" " + " ".join(words))
        begins = np.flatnonzero(self._begins_with_space[ids]).tolist()
        if len(begins) == len(words):
            for target, begin, end in zip(lists, begins, [*begins[1:], len(ids)], strict=True):
                target += ids[begin:end]

    def _encode_each(self, texts: list[str]) -> list[list[int]]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _cut(text: str) -> list[str]:
    """Return what a text begins with, and what follows each of its single spaces."""
    words = text.split(" ")
    # Case 1: no two spaces beside each other, at the end, or beside a line break and the like.
    if "" not in islice(words, 1, None):
        others = OTHER_SPACES.intersection(text)
        if not any(f" {space}" in text or f"{space} " in text for space in others):
            return words
    # Case 2: only some spaces are single ones.
    words = _LONE_SPACE.split(text)
    begin = words[0]
    if begin[:1] == " " and not begin[1:2].isspace() and len(begin) > 1:
        words[:1] = ["", begin[1:]]
    return words
