"""Sequences back as text, each stretch of it with what it is to training."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from samba_onnx.errors import DataError, UsageError
from samba_onnx.tools.data_prep.dataset import HDF5Dataset
from samba_onnx.tools.data_prep.token_types import TokenType


@dataclass(frozen=True)
class Stretch:
    """Tokens of one type that follow one another."""

    type: str
    """``prompt``, ``completion``, ``padding`` or ``separator``."""
    tokens: int
    text: str
    """What they say; empty for padding."""


@dataclass(frozen=True)
class DecodedSequence:
    """A sequence as text."""

    number: int
    """From 1."""
    stretches: tuple[Stretch, ...]


def decode(path: Path, tokenizer: Any, first: int, count: int | None) -> Iterator[DecodedSequence]:
    """Yield sequences of a file as text.

    Args:
        path: An HDF5 file of the data preparation.
        tokenizer: The tokenizer of transformers that made it.
        first: Number of the first sequence, from 1.
        count: How many; None for all that follow.

    Raises:
        UsageError: There is no such sequence.
        DataError: The file is none of the data preparation, or has types of tokens or ids that
            nobody knows.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such file", path=path)
    with HDF5Dataset(path) as dataset:
        # A file without sequences is none to complain of: it is shown as it is, empty.
        if not 1 <= first <= max(1, len(dataset)):
            raise UsageError(f"sequence {first}: {path} has sequences 1 to {len(dataset)}")
        stop = len(dataset) if count is None else min(len(dataset), first - 1 + count)
        for index in range(first - 1, stop):
            sequence = dataset[index]
            ids, types = sequence["input_ids"], sequence["token_type_ids"]
            if types.min() < 0 or types.max() >= len(TokenType):
                raise DataError(
                    f"{path}: sequence {index + 1} has types of tokens other than 0 to 3"
                )
            if ids.min() < 0 or ids.max() >= len(tokenizer):
                raise DataError(
                    f"{path}: sequence {index + 1} has ids beyond the {len(tokenizer)} tokens of this "
                    "tokenizer: give the one that made the file, with --pretrained_tokenizer"
                )
            yield DecodedSequence(index + 1, tuple(_stretches(ids, types, tokenizer)))


def _stretches(ids: Any, types: Any, tokenizer: Any) -> Iterator[Stretch]:
    # A stretch begins where the type is another one than before.
    borders = [0, *(np.flatnonzero(np.diff(types)) + 1).tolist(), len(types)]
    for begin, end in itertools.pairwise(borders):
        kind = TokenType(int(types[begin]))
        text = "" if kind is TokenType.PADDING else tokenizer.decode(ids[begin:end].tolist())
        yield Stretch(kind.name.lower(), end - begin, text)
