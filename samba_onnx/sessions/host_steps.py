"""Steps on the host of optimizers whose parameters are trained on the device."""

from __future__ import annotations

import logging
from typing import Any, Final

from torch.optim import Optimizer

LOGGER: Final = logging.getLogger(__name__)

_IS_WATCHED: Final = "_samba_watches_steps"
"""Attribute of an optimizer that was traced: whether something is still to be said of its steps."""


def watch_steps(optimizer: Optimizer) -> None:
    """Say it once when ``step()`` is called and no parameter has a gradient on the host.

    A run leaves gradients on the device, where the OPT sections step. What a loop of torch calls
    after it would change nothing, without a word.

    Args:
        optimizer: An optimizer that a program was traced with.
    """
    # An optimizer that is traced again has the hook already; hooks would only grow.
    if not hasattr(optimizer, _IS_WATCHED):
        optimizer.register_step_pre_hook(_look)
    setattr(optimizer, _IS_WATCHED, True)


def _look(optimizer: Optimizer, _arguments: Any, _keywords: Any) -> None:
    if not getattr(optimizer, _IS_WATCHED):
        return
    groups = [group["params"] for group in optimizer.param_groups]
    # A program that trains something on the host, too, has good reason for the step.
    if any(parameter.grad is not None for parameters in groups for parameter in parameters):
        return
    setattr(optimizer, _IS_WATCHED, False)
    kind = type(optimizer).__name__
    LOGGER.warning(
        "%s.step() was called, and no parameter has a gradient on the host, so that it changes "
        "nothing. The device steps in samba.session.run, with section type OPT, which runs without "
        "section_types have: leave step() and zero_grad() out.",
        kind,
    )
