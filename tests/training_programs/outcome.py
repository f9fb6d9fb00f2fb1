"""What training a program on both machines came to."""

from __future__ import annotations

import dataclasses
import logging
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import samba_onnx as samba
from samba_onnx.errors import SambaError
from tests.training_programs.machines import Device, Eager, Machine, Weights

__all__ = ["LOSSES", "WEIGHTS", "Outcome", "Program", "measure"]

LOSSES = 2e-5
"""Largest difference of a loss, relative to the largest loss of a training: some hundred roundings after 20 steps."""
WEIGHTS = 2e-5
"""Largest difference of a parameter or buffer after the last step, relative to its largest number.

Errors of one step are carried on by all that follow, and small numbers next to large ones have the
errors of these: measured are 1e-7 to 9e-6."""
MOVED = 0.02
"""What a training has to move its weights by at least, or the comparison would be one of initial values."""
_LONGEST = 400

Program = Callable[[Machine], Weights]


@dataclass(frozen=True)
class Outcome:
    """What became of one program."""

    result: str
    """``equal``; ``refused`` by a SambaError; ``told``, which is different with a warning; ``different`` without
    one; or ``failed`` with another error."""
    loss: float = field(default=0.0, compare=False)
    """The largest difference of a loss of a step, relative to the largest one."""
    weights: float = field(default=0.0, compare=False)
    """The largest difference of a final weight, relative to the largest number of its tensor."""
    reason: str = field(default="", compare=False)
    """What was said: the error, or where numbers differ the first warning; words may change."""

    @property
    def rank(self) -> int:
        """How good the result is: silent differences are the worst."""
        order = ["failed", "told", "refused", "equal"]
        return order.index(self.result) if self.result in order else -1

    def as_json(self) -> dict[str, Any]:
        """Return the outcome without what is zero or empty."""
        fields = dataclasses.asdict(self).items()
        return {name: value for name, value in fields if value or name == "result"}


class _Listening(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def measure(program: Program, folder: Path) -> Outcome:
    """Train a program in torch and on the device, from the same seed, and compare.

    Args:
        program: From the catalogue.
        folder: Where the PEF goes.
    """
    eager = Eager()
    wanted, _ = _train(program, eager)
    moved = max(
        _difference(before, wanted[n]) for n, before in eager.initial.items() if n in wanted
    )
    assert moved >= MOVED, f"weights moved by {moved:.1e} of their size only"
    device = Device(folder)
    samba.session.reset()
    try:
        got, said = _train(program, device)
    except SambaError as error:
        return Outcome("refused", reason=f"{type(error).__name__}: {sentence(str(error))}")
    except Exception as error:  # whatever is raised is a row of the table
        return Outcome("failed", reason=f"{type(error).__name__}: {sentence(str(error))}")
    finally:
        samba.session.reset()
    assert len(eager.losses) >= 20, f"only {len(eager.losses)} losses were noted"
    loss = _difference(torch.tensor(device.losses), torch.tensor(eager.losses))
    weights = max(_difference(got[name], value) for name, value in wanted.items())
    equal = loss <= LOSSES and weights <= WEIGHTS
    reason = "" if equal else sentence(next(iter(said), ""))
    result = "equal" if equal else "told" if reason else "different"
    return Outcome(result, _short(loss), _short(weights), reason)


def _short(number: float) -> float:
    return float(f"{number:.1e}")


def _train(program: Program, machine: Machine) -> tuple[Weights, list[str]]:
    """Return the final weights, and all warnings."""
    listening = _Listening()
    logger = logging.getLogger("samba_onnx")
    logger.addHandler(listening)
    propagating, logger.propagate = logger.propagate, False
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = program(machine)
    finally:
        logger.removeHandler(listening)
        logger.propagate = propagating
    return made, listening.said + [str(warning.message) for warning in caught]


def _difference(had: Tensor, wanted: Tensor) -> float:
    """Return the largest difference as a fraction of the largest number."""
    if had.shape != wanted.shape or not torch.equal(had.isfinite(), wanted.isfinite()):
        return float("inf")
    if not wanted.numel():
        return 0.0
    had, wanted = had.detach().double().nan_to_num(), wanted.detach().double().nan_to_num()
    # A tensor that is all zero, as a fresh bias may stay, is held to the same number absolutely.
    scale = float(wanted.abs().max()) or 1.0
    return float((had - wanted).abs().max()) / scale


def sentence(text: str) -> str:
    """Return the first line of a message, without folders and line numbers, which change."""
    line = re.sub(r"(?<!\w)/\S*/(?=[^/\s]+)", "", text).partition("\n")[0]
    line = re.sub(r"(\.py):\d+", r"\1", line)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
