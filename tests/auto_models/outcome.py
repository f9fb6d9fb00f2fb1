"""What converting and verifying one model of ``AutoModel`` came to."""

from __future__ import annotations

import collections
import dataclasses
import logging
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from samba_onnx.compiling.torch.module_verification import verify_module
from samba_onnx.compiling.torch.porting import port
from samba_onnx.errors import SambaError
from tests.architectures.inference import fallen_operators
from tests.auto_models.record import Representative, build

__all__ = ["Outcome", "measure"]

_LONGEST = 300


@dataclass(frozen=True)
class Outcome:
    """What became of one model."""

    converts: bool
    agrees: bool = False
    """Whether the emulator computes what eager torch computes."""
    error: float = field(default=0.0, compare=False)
    """The largest difference of an output, as a fraction of its largest number."""
    left_out: str = ""
    """The class of the cache that the model returns and the PEF does not."""
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    """Nodes on the CPU by operator, without those that are there to save time."""
    reason: str = field(default="", compare=False)
    """The error, where there is no PEF or it does not agree; words may change."""

    def as_json(self) -> dict[str, Any]:
        """Return the outcome without what is false, zero or empty, but for whether it converts."""
        fields = dataclasses.asdict(self).items()
        return {n: value for n, value in fields if value or n == "converts"}


def measure(representative: Representative, folder: Path) -> Outcome:
    """Build, convert and verify a model.

    Args:
        representative: From the catalogue.
        folder: Where the PEF goes.
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _measured(representative, folder)
    finally:
        logging.disable(before)


def _measured(representative: Representative, folder: Path) -> Outcome:
    model = build(representative)
    try:
        pef = port(model, folder / "model.pef")
    except SambaError as error:
        return Outcome(False, reason=_sentence(error))
    with pef:
        fallen = collections.Counter(fallen_operators(pef.manifest))
        kinds = (re.search(r"of class (\w+), which is left out", n) for n in pef.manifest.notes)
        told: dict[str, Any] = {
            "left_out": ", ".join(sorted({kind[1] for kind in kinds if kind})),
            "fallbacks": dict(sorted(fallen.items())),
        }
        try:
            outputs = verify_module(model, pef, threads=1).outputs
        except SambaError as error:
            return Outcome(True, reason=_sentence(error), **told)
        worst = max(output.max_relative_error for output in outputs)
        return Outcome(True, all(output.passed for output in outputs), float(worst), **told)


def _sentence(error: SambaError) -> str:
    """Return the first line of an error, without the places of temporary files."""
    text = re.sub(r"(?<!\w)/\S*/(?=[^/\s]+)", "", str(error)).partition("\n")[0]
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
