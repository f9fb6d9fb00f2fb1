"""An engine that executes parts of an original and the sections of its PEF, on host values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx

from samba_onnx.comparing.pieces import ModelPieces
from samba_onnx.facts.defaults import DEFAULT_ENGINE
from samba_onnx.pef import Pef
from samba_onnx.runtime.engine.protocol import Engine, HostComputation, Rewriting
from samba_onnx.runtime.engine.registry import make_engine
from samba_onnx.runtime.engine.settings import engine_settings


@dataclass(frozen=True)
class BothSides:
    """How both sides are executed."""

    engine: Engine
    pef: Pef
    original: ModelPieces
    folder: str
    """Where the files of the original's external initializers lie."""

    def open_original(self, piece: onnx.ModelProto) -> HostComputation:
        """Prepare a part of the original.

        Raises:
            ExecutionError: The engine refuses it.
        """
        return self.engine.open(piece, "the original model", self.folder)


def plain_engine(threads: int | None, custom_ops: Sequence[str | os.PathLike[str]] = ()) -> Engine:
    """Return an engine that executes every node as it stands, with weights where they lie.

    Args:
        threads: Threads within operators; all cores where None.
        custom_ops: Shared libraries with operators of custom domains.

    Raises:
        UsageError: ``threads`` is less than 1, or a library is no file.
    """
    # Not prepacked, as each section runs once: copying weights into another layout would not pay.
    settings = engine_settings(threads, prepack=False, custom_ops=custom_ops)
    return make_engine(DEFAULT_ENGINE, replace(settings, rewriting=Rewriting.NONE))
