"""The loss of connectionist temporal classification, in operators that can be captured.

torch's own operator looks at lengths and targets to choose the sizes of what it keeps. Here sizes are
the largest that there can be, and lengths are values like any other: a compiled program takes them
anew in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

_IMPOSSIBLE: Final = -1e30
"""Logarithm of the probability of what cannot be; -inf would make NaN of differences."""
_REDUCTIONS: Final = ("none", "mean", "sum")

_Lengths = Tensor | Sequence[int]


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: _Lengths,
    target_lengths: _Lengths,
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Compute how unlikely it is that frames read as their targets; names and meaning are torch's.

    Args:
        log_probs: (T, N, C) or (T, C); logarithms of probabilities of classes.
        targets: (N, S), or (S) of one sample, or those of all samples one behind the other.
        input_lengths: (N) or (); frames of each sample.
        target_lengths: (N) or (); targets of each sample.
        blank: The class that stands for no target.
        reduction: ``none``, ``mean`` or ``sum``, or torch's numbers for them; the mean is over
            samples, each divided by its number of targets.
        zero_infinity: Whether a sample that has too few frames for its targets counts nothing.

    Returns:
        A scalar; one number per sample with reduction ``none``. A sample with too few frames has
        an infinite loss.
    """
    is_single = log_probs.dim() == 2
    values = log_probs.unsqueeze(1) if is_single else log_probs
    frames, labels = _lengths(input_lengths), _lengths(target_lengths)
    # Rows may be filled up with any number, such as -1, which would be no index. States beyond a
    # sample's length are never read, so what stands there does not matter.
    rows = _rows(targets, target_lengths, labels).clamp(0, values.shape[2] - 1)
    losses = -_likelihood(values, _with_blanks(rows, blank), frames, labels)
    # Where no path exists, the constant is part of every sum: half of it lies far from both kinds.
    is_impossible = losses > -_IMPOSSIBLE / 2
    losses = losses + _normalization(values, frames)
    if zero_infinity:
        losses = losses.masked_fill(is_impossible, 0.0)
    else:  # a factor has torch's gradient too, which is no number
        losses = losses * torch.where(is_impossible, torch.inf, 1.0)
    kind = reduction if isinstance(reduction, str) else _REDUCTIONS[reduction]
    if kind == "sum":
        return losses.sum()
    if kind == "mean":
        return (losses / labels.clamp(min=1)).mean()
    return losses.squeeze(0) if is_single else losses


def _lengths(lengths: _Lengths) -> Tensor:
    tensor = lengths if isinstance(lengths, Tensor) else torch.tensor(lengths)
    return tensor.reshape(-1).long()


def _rows(targets: Tensor, target_lengths: _Lengths, labels: Tensor) -> Tensor:
    """Return targets as (N, S), where S is the largest number of targets that there can be."""
    if targets.dim() == 2:
        return targets.long()
    if not isinstance(target_lengths, Tensor):
        # Known numbers keep the table small.
        most = max(target_lengths, default=0)
    else:
        # Values of lengths are not known while tracing: all targets may belong to one sample.
        most = targets.shape[0]
    ends = labels.cumsum(0)
    places = (ends - labels).unsqueeze(1) + torch.arange(most)
    # One element more, for places beyond the last target to read.
    padded = pad(targets.long(), (0, 1))
    return padded[places.clamp(max=targets.shape[0])]


def _with_blanks(rows: Tensor, blank: int) -> Tensor:
    """Return (N, 2 S + 1): a blank before, between and behind the targets."""
    blanks = torch.full_like(rows, blank)
    # Interleaved by stacking, which has a gradient and needs no writing in place.
    between = torch.stack([blanks, rows], 2).flatten(1)
    return torch.cat([between, blanks.new_full((rows.shape[0], 1), blank)], 1)


def _likelihood(values: Tensor, states: Tensor, frames: Tensor, labels: Tensor) -> Tensor:
    """Return the logarithm of the probability of each sample's targets.

    Args:
        values: (T, N, C).
        states: (N, 2 S + 1), as ``_with_blanks`` returns them.
        frames: (N).
        labels: (N).
    """
    count = states.shape[1]
    emitted = values.gather(2, states.expand(values.shape[0], -1, -1))
    # A path may leave out the blank between two labels that differ; between equal ones, the blank
    # is what tells them apart.
    may_skip = pad(states[:, 2:] != states[:, :-2], (2, 0)) & (torch.arange(count) % 2 == 1)
    # A path begins at the first blank, or at the first label if there is one.
    begins = torch.arange(count) < 1 + (labels > 0).long().unsqueeze(1)
    reached = torch.where(begins, emitted[0], _IMPOSSIBLE)
    for time in range(1, values.shape[0]):
        one = pad(reached, (1, 0), value=_IMPOSSIBLE)[:, :-1]
        two = pad(reached, (2, 0), value=_IMPOSSIBLE)[:, :-2]
        two = torch.where(may_skip, two, _IMPOSSIBLE)
        following = torch.stack([reached, one, two]).logsumexp(0) + emitted[time]
        # All samples run as many steps as the longest: behind its own frames a sample's states
        # stay.
        reached = torch.where((time < frames).unsqueeze(1), following, reached)
    # A path ends at the last label or at the blank behind it.
    last = (2 * labels).unsqueeze(1)
    at_blank = reached.gather(1, last).squeeze(1)
    at_label = reached.gather(1, (last - 1).clamp(min=0)).squeeze(1)
    # Without labels both places are state 0, which would count twice.
    at_label = torch.where(labels > 0, at_label, _IMPOSSIBLE)
    return torch.stack([at_blank, at_label]).logsumexp(0)


def _normalization(values: Tensor, frames: Tensor) -> Tensor:
    """Return zeros with torch's gradient, which takes probabilities for results of ``log_softmax``."""
    total = values.exp().sum(2)
    # torch gives no gradient to frames behind a sample's own.
    counted = torch.arange(values.shape[0]).unsqueeze(1) < frames
    return torch.where(counted, total - total.detach(), 0.0).sum(0)
