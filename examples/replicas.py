"""What a program does for replicas: each gets a part of the data, and the first one speaks for all.

``--data-parallel`` joins the processes that ``torchrun`` or ``mpirun`` launched; without it there is
one replica, which gets all.
"""

from __future__ import annotations

from typing import Any

import torch
from sambaflow.samba import utils
from torch import distributed
from torch.utils.data import DistributedSampler


def part_of(dataset: Any, seed: int) -> DistributedSampler[int] | None:
    """Return the order in which this replica reads its part of a data set; None if it has all.

    All replicas have as many samples, and no two of them the same.

    Args:
        dataset: Has a length.
        seed: Another one for every epoch.
    """
    if utils.get_world_size() == 1:
        return None
    return DistributedSampler(
        dataset, utils.get_world_size(), utils.get_rank(), seed=seed, drop_last=True
    )


def mean(value: float) -> float:
    """Return the mean of what all replicas have."""
    if utils.get_world_size() == 1:
        return value
    total = torch.tensor(value, dtype=torch.float64)
    distributed.all_reduce(total)
    total /= utils.get_world_size()
    return total.item()


def say(text: str) -> None:
    """Print a line, once for all replicas."""
    if utils.is_main_process():
        print(text)
