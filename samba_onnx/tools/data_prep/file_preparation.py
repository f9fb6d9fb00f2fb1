"""One file of text becomes one HDF5 file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from samba_onnx.errors import DataError
from samba_onnx.safety.files import atomic_output
from samba_onnx.tools.data_prep.article_reading import Lines, read_lines
from samba_onnx.tools.data_prep.articles import (
    Article,
    JsonReader,
    UnknownCategoryError,
    text_article,
)
from samba_onnx.tools.data_prep.hdf5_files import new_sequence_file, sha256_of
from samba_onnx.tools.data_prep.metrics import Metrics
from samba_onnx.tools.data_prep.packing import Packed, Packer
from samba_onnx.tools.data_prep.preparation_options import PreparationOptions
from samba_onnx.tools.data_prep.tokenizer_record import TokenizerRecord
from samba_onnx.tools.data_prep.tokenizing import ArticleTokenizer

Progress = Callable[[int, int], None]
"""Hears how many bytes and lines have been done since the last call."""


@dataclass(frozen=True)
class FileTask:
    """A file that is to be prepared."""

    source: Path
    """The text: ``.jsonl`` or ``.txt``."""
    target: Path
    """The HDF5 file."""
    skipped: Path
    """Where lines go that cannot be read, if any are skipped."""


@dataclass(frozen=True)
class FileResult:
    """A file that was prepared."""

    metrics: Metrics
    sha256: str
    """SHA-256 of the HDF5 file, in hexadecimal digits."""
    skipped: tuple[tuple[int, str], ...] = ()
    """Number of each line that was skipped, with the reason; the first ones only."""


MOST_REASONS = 100
"""Skipped lines of a file whose reasons are logged."""


def prepare_file(
    task: FileTask, options: PreparationOptions, record: TokenizerRecord, progress: Progress
) -> FileResult:
    """Tokenize and pack the lines of a file.

    Memory is bounded: by a batch of lines, or by the longest line where that is longer.

    Args:
        task: The file, and what to make of it.
        options: How lines become sequences.
        record: The tokenizer.
        progress: Called after each batch.

    Returns:
        What became of the file.

    Raises:
        DataError: A line cannot be read, and is not to be skipped; the error has file and line.
        OutputError: The HDF5 file cannot be written; there is none.
        UsageError: A library is missing.
    """
    planes = 2 if options.categories is None else 3
    with (
        _LineReader(task, options) as reader,
        new_sequence_file(task.target, options.max_seq_length, planes) as output,
    ):
        metrics = Metrics()
        for packed in _packed(task, reader, options, record, progress):
            output.append(packed.planes)
            metrics += packed.metrics
    return FileResult(metrics, sha256_of(task.target), tuple(reader.reasons))


def _packed(
    task: FileTask,
    reader: _LineReader,
    options: PreparationOptions,
    record: TokenizerRecord,
    progress: Progress,
) -> Iterator[Packed]:
    """Yield the sequences of a file as they are complete, with all that there is to count."""
    tokenizer = ArticleTokenizer(options, record)
    packer = Packer(
        options.packing,
        options.max_seq_length,
        record.padding,
        categories=options.categories is not None,
        keep_prompt_only=options.keep_prompt_only_sequences,
    )
    for lines in read_lines(task.source, keep_ends=reader.is_text):
        articles = reader.articles(lines)
        tokens = tokenizer.tokenize(articles)
        packed = packer.pack(tokens)
        counts = Metrics(
            articles=len(articles),
            input_tokens=tokens.planes.shape[1],
            lines_skipped=len(lines.texts) - len(articles),
            lines_replaced=lines.replaced + sum(article.replaced for article in articles),
        )
        yield Packed(packed.planes, packed.metrics + counts)
        # Behind the yield: by now the sequences are with the file.
        progress(lines.size, len(lines.texts))
    yield packer.finish()


class _LineReader:
    """Reads lines as articles, and keeps aside those that cannot be read."""

    def __init__(self, task: FileTask, options: PreparationOptions) -> None:
        """Choose by the suffix.

        Args:
            task: The file.
            options: What a line of JSON has, and whether to skip what is none.
        """
        self.is_text = task.source.suffix == ".txt"
        self.reasons: list[tuple[int, str]] = []
        self._read: Callable[[str], Article] = text_article
        if not self.is_text:
            self._read = JsonReader(options).read
        self._task = task
        self._skips = options.ignore_input_format_error
        self._files = contextlib.ExitStack()
        self._skipped: IO[bytes] | None = None

    def __enter__(self) -> _LineReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.__exit__(*error)  # type: ignore[arg-type]  # the three of every exit

    def articles(self, lines: Lines) -> list[Article]:
        """Return the articles of the lines that can be read.

        Args:
            lines: Some lines of the file.

        Raises:
            DataError: One cannot, and is not to be skipped.
        """
        return list(self._articles(lines))

    def _articles(self, lines: Lines) -> Iterator[Article]:
        for number, line in enumerate(lines.texts, lines.first):
            try:
                article = self._read(line)
            except DataError as error:
                # A name that is missing in the list would have all lines of a category skipped.
                if not self._skips or isinstance(error, UnknownCategoryError):
                    path = self._task.source
                    placed = error.within(f"{path}:{number}", path=path)
                    placed.line = number
                    raise placed from None
                self._skip(number, line, str(error))
            else:
                yield article

    def _skip(self, number: int, line: str, reason: str) -> None:
        """Keep a line, as it was, where the user can mend it."""
        # Made for the first line that goes there, so that nobody finds an empty file.
        if self._skipped is None:
            self._skipped = self._files.enter_context(atomic_output(self._task.skipped))
        self._skipped.write(line.encode() + b"\n")
        if len(self.reasons) < MOST_REASONS:
            self.reasons.append((number, reason))
