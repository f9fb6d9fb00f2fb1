"""Steps on the host that change nothing are told of once per trace."""

from __future__ import annotations

import logging

import pytest
import torch

from samba_onnx.sessions.host_steps import watch_steps


def test_a_step_without_gradients_is_told_of_once_per_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, other = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([{"params": [one]}, {"params": [other]}], lr=0.1)

    def told() -> int:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            optimizer.step()
        assert all(
            text.startswith("SGD.step() was called, and no parameter has a gradient on the host")
            for text in caplog.messages
        )
        return len(caplog.messages)

    assert told() == 0
    watch_steps(optimizer)
    # What trains on the host, too, has good reason for the step.
    other.grad = torch.ones(1)
    assert told() == 0
    other.grad = None
    assert [told(), told()] == [1, 0]
    watch_steps(optimizer)
    assert [told(), told()] == [1, 0]
    assert len(optimizer._optimizer_step_pre_hooks) == 1
