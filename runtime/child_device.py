"""In a child process: a device that does what another process asks; ``isolated_device`` starts it by its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from samba_onnx.errors import SambaError
from samba_onnx.pef import load_pef
from samba_onnx.runtime.host_values import packed, unpacked
from samba_onnx.runtime.parallel_device import open_device

__all__ = ["ASKED", "TOLD", "serve"]

ASKED: Final = "question.safetensors"
TOLD: Final = "answer.safetensors"
"""Files of arrays that belong to a question and to its answer."""


def serve(
    pef: str, options: dict[str, Any], folder: Path
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Load a PEF, and return what answers questions about its device.

    Args:
        pef: Path of the PEF.
        options: Keywords of ``Device``.
        folder: Where arrays lie.
    """
    device: Any = None

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        nonlocal device
        try:
            if device is None:
                device = open_device(load_pef(pef), **options)
            # The first question only loads.
            arguments, keywords = unpacked(question["arguments"], folder / ASKED)
            method = question["method"]
            result = getattr(device, method)(*arguments, **keywords) if method else None
        except SambaError as error:
            return _told(device, {"error": type(error).__name__, "text": str(error)})
        # A caller causes these two, by values that do not fit into memory and by keywords that
        # Device does not have. Whatever else is raised is a fault of this product, and no answer.
        except (MemoryError, TypeError) as error:
            return _told(device, {"error": type(error).__name__, "text": str(error)})
        return _told(device, {"result": packed(result, folder / TOLD)})

    return answer


def _told(device: Any, answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with the copies that were made on the way to it, which are forgotten here."""
    if device is not None:
        runs, transfers = device.ledger.runs, device.ledger.transfers
        # The parent keeps the records. Kept here as well, all of them would travel with each answer.
        device.ledger.reset()
        answer |= {"runs": runs, "transfers": [dataclasses.asdict(each) for each in transfers]}
    return answer
