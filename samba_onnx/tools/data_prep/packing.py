"""Articles of any length, packed into sequences of one length; whole arrays at a time.

An article keeps its tokens in their order. What is left over at the end of one array of articles
begins the next, so that the sequences do not depend on how the articles were handed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from samba_onnx.tools.data_prep.metrics import Metrics
from samba_onnx.tools.data_prep.preparation_options import Overflow, PackingConfig, PackingStyle
from samba_onnx.tools.data_prep.token_types import NO_CATEGORY, Articles, Integers, TokenType

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Packed:
    """Sequences that are complete."""

    planes: Integers
    """(planes, sequences, length): ids, types and, where there are categories, categories."""
    metrics: Metrics


class _Kept(NamedTuple):
    """What is left of articles that may be longer than a sequence."""

    starts: Indices
    """First token of each article that is kept."""
    lengths: Indices
    """Tokens that are kept, 0 for an article that is dropped."""
    room: Indices
    """Tokens that an article asks for; a dropped one asks for a sequence, which ends the one before."""


class Packer:
    """Packs articles, as they come, into sequences."""

    def __init__(
        self,
        config: PackingConfig,
        length: int,
        padding_id: int,
        *,
        categories: bool = False,
        keep_prompt_only: bool = False,
    ) -> None:
        """Begin without any article.

        Args:
            config: How to pack.
            length: Tokens of a sequence.
            padding_id: Id of the token that fills what is left of a sequence.
            categories: Whether tokens have categories, as a third plane.
            keep_prompt_only: Whether to keep sequences without any token of a completion.
        """
        self._config = config
        self._length = length
        self._fill = np.array([padding_id, TokenType.PADDING, NO_CATEGORY], np.int32)
        self._fill = self._fill[: 3 if categories else 2]
        self._keep_prompt_only = keep_prompt_only
        self._open: Integers = np.zeros((len(self._fill), 0), np.int32)

    def pack(self, articles: Articles) -> Packed:
        """Pack some articles.

        Args:
            articles: Their tokens, with as many planes as the packer was told.

        Returns:
            The sequences that they complete; what is left waits for more articles.
        """
        if self._config.style is PackingStyle.FULL:
            return self._counted(self._fill_up(articles.planes))
        open_length = self._open.shape[1]
        # What is open counts as the first article: it fits, and those that come may join it.
        planes = np.concatenate([self._open, articles.planes], axis=1)
        lengths = np.concatenate([[open_length], articles.lengths]).astype(np.int64)
        kept = self._cut(lengths)
        if self._config.style is PackingStyle.SINGLE:
            sequences = self._one_each(planes, kept)
        else:
            sequences = self._share(planes, kept)
        return self._counted(sequences, lengths, kept)

    def finish(self) -> Packed:
        """Return the last sequence, padded, if one is open."""
        tokens = self._open
        self._open = tokens[:, :0]
        lengths = np.array([tokens.shape[1]] if tokens.shape[1] else [], np.int64)
        return self._counted(self._lay_out(tokens, np.arange(len(lengths)), 0 * lengths, lengths))

    def _fill_up(self, planes: Integers) -> Integers:
        """Cut a stream of tokens wherever a sequence ends."""
        planes = np.concatenate([self._open, planes], axis=1)
        count = planes.shape[1] // self._length
        # A copy: a view of the few tokens that are left would keep all of them in memory.
        self._open = planes[:, count * self._length :].copy()
        return planes[:, : count * self._length].reshape(len(planes), count, self._length)

    def _cut(self, lengths: Indices) -> _Kept:
        """Apply the overflow to articles that are longer than a sequence."""
        starts = np.cumsum(lengths) - lengths
        excess = np.maximum(lengths - self._length, 0)
        room = lengths - excess
        if self._config.overflow is Overflow.DROP:
            return _Kept(starts, np.where(excess > 0, 0, lengths), room)
        if self._config.overflow is Overflow.TRUNCATE_LEFT:
            starts = starts + excess
        return _Kept(starts, room, room)

    def _one_each(self, planes: Integers, kept: _Kept) -> Integers:
        """Give every article a sequence of its own."""
        filled = kept.lengths > 0
        lengths = kept.lengths[filled]
        tokens = _gather(planes, kept.starts[filled], lengths)
        return self._lay_out(tokens, np.arange(len(lengths)), np.zeros_like(lengths), lengths)

    def _share(self, planes: Integers, kept: _Kept) -> Integers:
        """Put as many whole articles into a sequence as fit; the last sequence stays open."""
        ends = np.concatenate([[0], np.cumsum(kept.room)])
        # For every article: the first one that no longer fits, if a sequence began with it.
        beyond = np.searchsorted(ends, ends[:-1] + self._length, side="right") - 1
        firsts = _chain(beyond.tolist())
        counts = np.diff([*firsts, len(kept.room)])
        sequences = np.repeat(np.arange(len(firsts)), counts)
        offsets = ends[:-1] - np.repeat(ends[firsts], counts)

        closed = sequences < len(firsts) - 1
        self._open = _gather(planes, kept.starts[~closed], kept.lengths[~closed])
        filled = closed & (kept.lengths > 0)
        tokens = _gather(planes, kept.starts[filled], kept.lengths[filled])
        # A sequence with nothing but a dropped article never was one.
        _, numbers = np.unique(sequences[filled], return_inverse=True)
        return self._lay_out(tokens, numbers, offsets[filled], kept.lengths[filled])

    def _lay_out(
        self, tokens: Integers, sequences: Indices, offsets: Indices, lengths: Indices
    ) -> Integers:
        """Write articles into padded sequences.

        Args:
            tokens: (planes, tokens) of all articles.
            sequences: The number of the sequence of each article, in ascending order from 0.
            offsets: Where in its sequence each article begins.
            lengths: Tokens of each article.
        """
        count = int(sequences[-1]) + 1 if len(sequences) else 0
        result = np.empty((len(tokens), count, self._length), np.int32)
        result[:] = self._fill[:, None, None]
        places = _ranges(sequences * self._length + offsets, lengths)
        result.reshape(len(tokens), -1)[:, places] = tokens
        return result

    def _counted(
        self, sequences: Integers, lengths: Indices | None = None, kept: _Kept | None = None
    ) -> Packed:
        """Leave out sequences that are all prompt, and count what became of the tokens."""
        types = sequences[1]
        dropped = 0
        if not self._keep_prompt_only:
            trained = (types == TokenType.COMPLETION).any(axis=1)
            dropped = int((~trained).sum()) * self._length
            if dropped:
                sequences, types = sequences[:, trained], types[trained]
        prompts, completions, padding, separators = map(
            int, np.bincount(types.ravel(), minlength=len(TokenType))
        )
        long_articles = lost_tokens = 0
        if lengths is not None and kept is not None:
            long_articles = int((lengths > self._length).sum())
            lost_tokens = int((lengths - kept.lengths).sum())
        drops = self._config.overflow is Overflow.DROP
        return Packed(
            sequences,
            Metrics(
                sequences=sequences.shape[1],
                prompt_tokens=prompts,
                completion_tokens=completions + separators,
                separator_tokens=separators,
                padding_tokens=padding,
                articles_dropped=long_articles if drops else 0,
                articles_truncated=0 if drops else long_articles,
                tokens_dropped_from_packing=lost_tokens,
                tokens_dropped_from_all_prompt=dropped,
            ),
        )


def _chain(beyond: list[int]) -> list[int]:
    """Return the articles that sequences begin with: 0, the first that no longer fits, and so on."""
    firsts, place = [], 0
    # Where a sequence begins depends on where the one before ends: no operation on whole arrays.
    while place < len(beyond):
        firsts.append(place)
        place = beyond[place]
    return firsts


def _ranges(starts: Indices, lengths: Indices) -> Indices:
    """Return ``starts[i]``, ``starts[i] + 1``, ... for ``lengths[i]`` numbers, for each i in turn."""
    shifts = starts - (np.cumsum(lengths) - lengths)
    return np.repeat(shifts, lengths) + np.arange(int(lengths.sum()))


def _gather(planes: Integers, starts: Indices, lengths: Indices) -> Integers:
    """Return the tokens of articles, one article after the other; a copy."""
    return planes[:, _ranges(starts, lengths)]
