"""From texts to token ids, exactly as the tokenizer's own ``encode`` does it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

from samba_onnx.tools.data_prep.libraries import library
from samba_onnx.tools.data_prep.tokenizer_record import TokenizerRecord
from samba_onnx.tools.data_prep.word_memory import WordMemory, splits_at_spaces


class Encoder(Protocol):
    """What makes token ids of texts."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, with the special tokens that the tokenizer adds by itself."""


@functools.lru_cache(maxsize=1)  # a worker prepares many files, and need not learn words again
def make_encoder(record: TokenizerRecord) -> Encoder:
    """Return the quickest encoder that a tokenizer allows.

    Args:
        record: The tokenizer.

    Raises:
        UsageError: A library is missing.
    """
    if not record.backend:
        return TransformersEncoder(record.folder)
    tokenizer = library("tokenizers").Tokenizer.from_str(record.backend)
    whole_texts = LibraryEncoder(tokenizer)
    if splits_at_spaces(record.backend):
        return RememberingEncoder(whole_texts, tokenizer)
    return whole_texts


class LibraryEncoder:
    """Calls the tokenizers library with many texts at once."""

    def __init__(self, tokenizer: Any) -> None:
        """Take over a tokenizer.

        Args:
            tokenizer: A ``tokenizers.Tokenizer``; it forgets how to pad and truncate, which
                ``encode`` of transformers does not do either unless it is asked to.
        """
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        # The fast one leaves out offsets, which nobody here asks for.
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]


class RememberingEncoder:
    """Looks words up that it has seen before, and asks the library for the others.

    Words are most of a text, and few of them are new: a look-up takes a tenth of the time.
    """

    def __init__(self, whole_texts: LibraryEncoder, tokenizer: Any) -> None:
        """Take over a tokenizer.

        Args:
            whole_texts: Encodes texts in which an added token stands.
            tokenizer: A ``tokenizers.Tokenizer`` that splits at spaces.
        """
        self._whole_texts = whole_texts
        self._memory = WordMemory(tokenizer)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        results = self._memory.encode(texts)
        others = [place for place, ids in enumerate(results) if ids is None]
        if others:
            encoded = self._whole_texts.encode([texts[place] for place in others])
            for place, ids in zip(others, encoded, strict=True):
                results[place] = ids
        return [ids for ids in results if ids is not None]


class TransformersEncoder:
    """Calls ``encode`` of a tokenizer that is not made of the tokenizers library alone."""

    def __init__(self, folder: str) -> None:
        """Load the tokenizer.

        Args:
            folder: Where it is saved in transformers' format.
        """
        self._tokenizer = library("transformers").AutoTokenizer.from_pretrained(folder)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return [list(self._tokenizer.encode(text)) for text in texts]
