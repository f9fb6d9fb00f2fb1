"""Programs, cut for several RDUs between the passes and the plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from samba_onnx.errors import UsageError
from samba_onnx.passes.pipeline import PipelineResult
from samba_onnx.passes.planning.caches import cached_bytes
from samba_onnx.passes.sharding.cuts import Cut
from samba_onnx.passes.sharding.sharded_programs import ParallelOptions, cut_inputs, cut_part
from samba_onnx.pef.sharding import Parallelism
from samba_onnx.program.program import Program

__all__ = ["ProgramCutter"]


class ProgramCutter:
    """Cuts the programs of one PEF, which share what stays on the device."""

    def __init__(self, options: ParallelOptions | None, *, sizes: int = 1) -> None:
        """Begin with nothing cut.

        Args:
            options: For how many RDUs; None to leave programs as they are.
            sizes: Sizes of one model that are programs of their own.

        Raises:
            UsageError: There are several sizes and several RDUs.
        """
        if options is not None and sizes > 1:
            raise UsageError(
                "a model is cut for several RDUs in one size: give one size of each dimension (--dim)"
            )
        self._options = options
        self._cut = None if options is None else Cut(options.rdus, options.mode)
        self._cache = (0, 0)

    @property
    def record(self) -> Parallelism | None:
        """What the manifest says of it; None for one RDU."""
        if self._options is None:
            return None
        return Parallelism(self._options.mode, self._options.rdus, *self._cache)

    @property
    def contents(self) -> Mapping[str, ir.TensorProtocol]:
        """Whole content of initializers that became residents, by name."""
        return {} if self._cut is None else self._cut.contents

    def notes(self) -> tuple[str, ...]:
        """Return why nodes are computed whole by every RDU."""
        if self._cut is None:
            return ()
        return tuple(
            f"{reason} ({count} time{'s' if count > 1 else ''})"
            for reason, count in self._cut.reasons.items()
        )

    def cut(self, program: Program, rewritten: Sequence[PipelineResult]) -> Program:
        """Cut the models of a program's parts, in place.

        Args:
            program: The program, which says what values are to the device.
            rewritten: Its parts behind all passes.

        Returns:
            The program, with the residents that initializers became.

        Raises:
            UsageError: The batch cannot be divided.
        """
        if self._cut is None:
            return program
        cut, models = self._cut, [result.model for result in rewritten]
        if cut.mode == "batch":
            cut_inputs(models[0], cut, program.inputs, program.regions)
        for model in models:
            cut_part(model, cut, program.residents, program.regions)
        self._cache = max(self._cache, *map(cached_bytes, models))
        kept = {*program.regions.values(), *program.residents}
        for name in cut.regions.keys() - kept:  # another graph may call a value so
            del cut.regions[name]
        return dataclasses.replace(program, residents={**program.residents, **cut.kinds})
