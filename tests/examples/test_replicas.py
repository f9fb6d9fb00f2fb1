"""Programs on two replicas take the steps that eager torch takes with the batches of both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DistributedSampler, TensorDataset

from tests.examples.readme import DATA, run_section
from tests.examples.test_convnet import (
    DECAY,
    MOMENTUM,
    RATE,
    assert_same_parameters,
    plain_model,
    printed_losses,
    read,
)

SIZE = 16
"""Images of each replica."""


def train_eagerly(root: Path) -> tuple[nn.Sequential, float]:
    """Return the network and the mean loss of an epoch on joined batches, in double precision."""
    images, labels = read(root, "train")
    data = TensorDataset(images, labels)
    model = plain_model().double()
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY)
    orders = [list(DistributedSampler(data, 2, rank, seed=0, drop_last=True)) for rank in range(2)]
    losses = []
    for begin in range(0, len(orders[0]) // SIZE * SIZE, SIZE):
        both = [number for order in orders for number in order[begin : begin + SIZE]]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[both].double()), labels[both])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, sum(losses) / len(losses)


def test_two_replicas_train_as_one_process_on_the_joined_batch(tmp_path: Path) -> None:
    run_section(DATA, tmp_path)
    _, printed, _, tuned = run_section("Several replicas", tmp_path)
    model, loss = train_eagerly(tmp_path / "data")
    # One replica speaks, of the mean of both.
    assert printed_losses(printed) == pytest.approx([loss], abs=1e-5)
    assert [path.name for path in (tmp_path / "out" / "replicas").iterdir()] == ["1.pt"]
    assert_same_parameters(tmp_path / "out" / "replicas" / "1.pt", model, 1e-5)
    steps = [(step, float(loss)) for step, loss in re.findall(r"step (\d) loss (\S+)", tuned)]
    assert [step for step, _ in steps] == ["1", "2", "3"]
    assert steps[2][1] < steps[0][1]
