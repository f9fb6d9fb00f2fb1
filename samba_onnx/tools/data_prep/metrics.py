"""What became of all tokens: counts that add up, and the figures that follow from them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Metrics:
    """Counts of lines, articles, sequences and tokens of one or several files."""

    articles: int = 0
    """Lines that were read."""
    sequences: int = 0
    """Sequences that were written."""
    input_tokens: int = 0
    """Tokens that the text came to, before packing."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Tokens of completions that were written, separators included."""
    separator_tokens: int = 0
    """Separators that were written."""
    padding_tokens: int = 0
    articles_dropped: int = 0
    """Articles that packing dropped because they were longer than a sequence."""
    articles_truncated: int = 0
    """Articles that packing cut because they were longer than a sequence."""
    tokens_dropped_from_packing: int = 0
    """Tokens that packing dropped or cut."""
    tokens_dropped_from_all_prompt: int = 0
    """Tokens, padding included, of sequences without any token of a completion."""
    lines_skipped: int = 0
    """Lines that could not be read, and were kept aside."""
    lines_replaced: int = 0
    """Lines with bytes that are not UTF-8, and lines with half characters, which JSON can escape: both
    were replaced, and a line that has both counts twice."""

    def __add__(self, other: Self) -> Self:
        """Return the counts of both."""
        counts = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in dataclasses.fields(self)
        }
        return type(self)(**counts)

    @property
    def output_tokens(self) -> int:
        """Tokens that were written, padding included."""
        return self.prompt_tokens + self.completion_tokens + self.padding_tokens

    def described(self) -> dict[str, int]:
        """Return the counts that the metadata of a dataset has, by their names there."""
        names = (
            "input_tokens", "output_tokens", "prompt_tokens", "completion_tokens", "padding_tokens", "sequences", "articles",
            "tokens_dropped_from_packing", "tokens_dropped_from_all_prompt",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def rows(self) -> list[tuple[str, str]]:
        """Return what a table shows: names with figures in words."""
        useful = self.prompt_tokens + self.completion_tokens
        return [
            ("Sequences", f"{self.sequences:,}"),
            ("Articles", f"{self.articles:,}"),
            ("Input tokens", f"{self.input_tokens:,}"),
            ("Dataset tokens", f"{self.output_tokens:,}"),
            ("Prompt tokens", f"{self.prompt_tokens:,}"),
            ("Completion tokens", f"{self.completion_tokens:,}"),
            ("Separators among them", f"{self.separator_tokens:,}"),
            ("Padding tokens", f"{self.padding_tokens:,}"),
            ("Average completion length", _mean(self.completion_tokens, self.articles)),
            ("Average prompt length", _mean(self.prompt_tokens, self.articles)),
            ("Data utilization", _percent(useful, self.input_tokens)),
            ("Articles dropped by packing", f"{self.articles_dropped:,}"),
            ("Articles truncated by packing", f"{self.articles_truncated:,}"),
            ("Tokens dropped by packing", f"{self.tokens_dropped_from_packing:,}"),
            ("Dropped from packing", _percent(self.tokens_dropped_from_packing, self.input_tokens)),
            (
                "Dropped from all prompt",
                _percent(self.tokens_dropped_from_all_prompt, self.input_tokens),
            ),
            ("Sequence utilization", _percent(useful, self.output_tokens)),
            (
                "Sequence completion utilization",
                _percent(self.completion_tokens, self.output_tokens),
            ),
            ("Lines skipped", f"{self.lines_skipped:,}"),
        ]


def metrics_text(columns: dict[str, Metrics]) -> str:
    """Return a table in plain text, for the log.

    Args:
        columns: Metrics by the name of what they are of, as ``train``.
    """
    tables = [metrics.rows() for metrics in columns.values()]
    lines = [("", *columns)]
    lines += [(rows[0][0], *(figure for _, figure in rows)) for rows in zip(*tables, strict=True)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        line[0].ljust(widths[0])
        + "".join(
            f"  {cell.rjust(width)}" for cell, width in zip(line[1:], widths[1:], strict=True)
        )
        for line in lines
    )


def _mean(total: int, count: int) -> str:
    return f"{total / count:.2f}" if count else "-"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"
