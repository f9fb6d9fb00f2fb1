"""What the user may choose: how lines become articles, articles sequences, and files datasets."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

from samba_onnx.errors import UsageError

MOST_LENGTH = 1 << 24
"""Tokens of a sequence at most: 64 MiB for each dataset, far beyond what any model reads at once."""
MOST_WORKERS = 16
"""Worker processes at most, where nobody says how many."""


def default_workers() -> int:
    """Return how many processes prepare files where nobody says: as many as cores, within limits."""
    return min(MOST_WORKERS, os.cpu_count() or 1)


class PackingStyle(enum.Enum):
    """How articles share a sequence."""

    FULL = "full"
    """Sequences are filled; an article goes on in the next one."""
    GREEDY = "greedy"
    """A sequence takes as many whole articles as fit."""
    SINGLE = "single"
    """One article."""


class Overflow(enum.Enum):
    """What becomes of an article that is longer than a sequence."""

    DROP = "drop"
    TRUNCATE_LEFT = "truncate_left"
    """Its first tokens are cut."""
    TRUNCATE_RIGHT = "truncate_right"
    """Its last tokens are cut."""


class UnitBoundary(enum.Enum):
    """What is one unit: a line, or each pair of prompt and completion in it."""

    JSONL = "jsonl"
    PAIR = "prompt_completion_pair"


class Shuffle(enum.Enum):
    """Whether lines are shuffled before they are split, and where."""

    NO = "False"
    ON_RAM = "on_RAM"
    LARGE_FILE = "large_file"


class EngineKind(enum.Enum):
    """What runs the preparation of several files."""

    LOCAL = "local"
    """Processes on this machine."""
    RAY = "ray"
    """A Ray cluster, whose machines share the folders of input and output."""


@dataclass(frozen=True)
class PackingConfig:
    """How articles are packed into sequences."""

    style: PackingStyle = PackingStyle.FULL
    overflow: Overflow | None = None
    """None for ``full``, which has no overflow."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            UsageError: ``full`` with an overflow, or another style without one.
        """
        if (self.style is PackingStyle.FULL) != (self.overflow is None):
            raise UsageError(f"packing {self}: expected one of {', '.join(self.choices())}")

    def __str__(self) -> str:
        if self.overflow is None:
            return self.style.value
        return f"{self.style.value}::{self.overflow.value}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the name of a packing.

        Args:
            text: ``full``, or style and overflow, as ``greedy::drop``.

        Raises:
            UsageError: There is no such packing.
        """
        style, _, overflow = text.partition("::")
        if text not in cls.choices():
            raise UsageError(f"packing {text}: expected one of {', '.join(cls.choices())}")
        return cls(PackingStyle(style), Overflow(overflow) if overflow else None)

    @staticmethod
    def choices() -> tuple[str, ...]:
        """Return the names of all packings."""
        styles = (PackingStyle.GREEDY, PackingStyle.SINGLE)
        pairs = tuple(f"{style.value}::{over.value}" for style in styles for over in Overflow)
        return (PackingStyle.FULL.value, *pairs)


@dataclass(frozen=True)
class PreparationOptions:
    """How the lines of a file become sequences."""

    max_seq_length: int = 2048
    """Tokens of a sequence."""
    packing: PackingConfig = field(default_factory=PackingConfig)
    packing_boundary: UnitBoundary = UnitBoundary.JSONL
    """What is packed as one article."""
    attention_boundary: UnitBoundary = UnitBoundary.JSONL
    """After what a separator stands."""
    prompt_keyword: str = "prompt"
    completion_keyword: str = "completion"
    prompt_prefix: str = ""
    """Text before every prompt that is not empty."""
    prompt_postfix: str = ""
    """Text after every prompt that is not empty."""
    space_separator: bool = True
    """Whether one space stands between prompt and completion, whatever the line has there."""
    keep_prompt_only_sequences: bool = False
    apply_chat_template: bool = False
    """Whether the tokenizer's template writes what stands around prompts and completions."""
    categories: tuple[str, ...] | None = None
    """Names of categories; the place of a name is its id. None writes no ``category_ids``."""
    ignore_input_format_error: bool = False
    """Whether a line that cannot be read is counted and kept aside, in place of an error."""

    def __post_init__(self) -> None:
        """Refuse a sequence that holds nothing, and categories that are not told apart.

        Raises:
            UsageError: ``max_seq_length`` is less than 1 or more than ``MOST_LENGTH``, or a category
                is named twice.
        """
        if not 1 <= self.max_seq_length <= MOST_LENGTH:
            raise UsageError(f"max_seq_length {self.max_seq_length}: expected 1 to {MOST_LENGTH}")
        names = self.categories or ()
        if len(set(names)) != len(names):
            raise UsageError(f"categories {', '.join(names)}: a name stands there twice")


@dataclass(frozen=True)
class SplitOptions:
    """Into how many files an input is split; None leaves a number to the rules.

    Either all three numbers are given, or ratios with or without the number of training files.
    """

    num_training_splits: int | None = None
    num_dev_splits: int | None = None
    num_test_splits: int | None = None
    dev_ratio: float | None = None
    """Part of the files, from 0 to 1, that is kept for evaluation."""
    test_ratio: float | None = None
    """Part of the files, from 0 to 1, that stays text for tests."""


@dataclass(frozen=True)
class DatasetOptions:
    """How a whole input becomes a folder that training reads."""

    preparation: PreparationOptions = field(default_factory=PreparationOptions)
    splits: SplitOptions = field(default_factory=SplitOptions)
    shuffle: Shuffle = Shuffle.NO
    seed: int = 0
    """Seed of the shuffling, at least 0: the same one gives the same files."""
    balance: bool = True
    """Whether the files of a kind end with equally many sequences, within one."""
    keep_split_jsonls: bool = False
    """Whether the text of each file stays under ``splits/``."""
    num_workers: int = field(default_factory=default_workers)
    """Processes, at least 1."""
    engine: EngineKind = EngineKind.LOCAL
    overwrite_output_path: bool = False
    log_file_path: Path | None = None
    """None for ``logs.log`` in the output folder."""

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing.

        Raises:
            UsageError: No worker, or a negative seed.
        """
        if self.num_workers < 1:
            raise UsageError(f"num_workers {self.num_workers}: expected at least 1")
        if self.seed < 0:
            raise UsageError(f"seed {self.seed}: expected at least 0")


Choice = TypeVar("Choice", bound=enum.Enum)


def choice(kind: type[Choice], option: str, text: str) -> Choice:
    """Read the value of an option that has few.

    Args:
        kind: The enumeration of its values.
        option: Its name, for the message.
        text: What was given.

    Raises:
        UsageError: It is none of the values.
    """
    try:
        return kind(text)
    except ValueError:
        expected = ", ".join(str(item.value) for item in kind)
        raise UsageError(f"{option} {text}: expected one of {expected}") from None
