"""An engine that executes parts of an original and the sections of its PEF, on host values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from samba_onnx.errors import ExecutionError
from samba_onnx.pef import Pef
from samba_onnx.pef.layout import WEIGHTS_MEMBER
from samba_onnx.pef.manifest import Fallback, Section
from samba_onnx.runtime.engine.assembly import place_weights
from samba_onnx.runtime.engine.protocol import Computation, Engine, HostComputation, Rewriting
from samba_onnx.runtime.engine.registry import DEFAULT_ENGINE, make_engine
from samba_onnx.runtime.engine.settings import engine_settings
from samba_onnx.workflows.pieces import ModelPieces


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

    def open_stage(self, model: onnx.ModelProto, stage: Section | Fallback) -> HostComputation:
        """Prepare a section or fallback of the PEF.

        Args:
            model: Its model, maybe with more outputs; is changed in place.
            stage: What the manifest says of it.

        Raises:
            ExecutionError: The engine refuses it.
        """
        path = Path(os.path.realpath(self.pef.path))
        place_weights(model, path.name, self.pef.member_offset(WEIGHTS_MEMBER))
        title = (
            f"{'section' if isinstance(stage, Section) else 'fallback'} {stage.id} ({stage.name})"
        )
        computation = Computation(
            model, title, str(path.parent), rounds_as_device=isinstance(stage, Section)
        )
        return self.engine.prepare(computation)

    def run(self, computation: HostComputation, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run one piece.

        Args:
            computation: From one of the other methods.
            feeds: Values by name, and maybe others.

        Returns:
            Its outputs by name.

        Raises:
            ExecutionError: An operator failed.
        """
        read = {name: feeds[name] for name in computation.inputs if name in feeds}
        try:
            results = computation.run(read)
        except self.engine.failures as error:
            reason = self.engine.reason(error)
            raise ExecutionError(
                f"the values cannot be computed: {reason}", reason=reason
            ) from None
        return dict(zip(computation.outputs, results, strict=True))


def plain_engine(threads: int | None, custom_ops: Sequence[str | os.PathLike[str]] = ()) -> Engine:
    """Return an engine that executes every node as it stands, with weights where they lie.

    Args:
        threads: Threads within operators; all cores where None.
        custom_ops: Shared libraries with operators of custom domains.

    Raises:
        UsageError: ``threads`` is less than 1, or a library is no file.
    """
    settings = engine_settings(threads, prepack=False, custom_ops=custom_ops)
    return make_engine(DEFAULT_ENGINE, replace(settings, rewriting=Rewriting.NONE))
