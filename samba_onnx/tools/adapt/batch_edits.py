"""Batches that have one size only: loaders leave out a smaller last one."""

from __future__ import annotations

import libcst as cst

from samba_onnx.tools.adapt.edits import add_arguments
from samba_onnx.tools.adapt.name_units import argument, read_nodes, unit_of
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.trained_step import TrainedStep

_LOADER = "torch.utils.data.DataLoader"


class BatchEdits:
    """Plans that all batches of a training have one size."""

    def __init__(self, port: ProgramPort, training: TrainedStep) -> None:
        self.port = port
        self.source = port.source
        self.training = training

    def plan(self) -> None:
        """Plan all edits."""
        loaders = self._loaders()
        for call in loaders:
            if (
                argument(call, "drop_last", 8) is None
                and argument(call, "batch_sampler", 4) is None
            ):
                self.port.edits.rewrite(
                    call,
                    lambda one: (
                        add_arguments(one, drop_last="True") if isinstance(one, cst.Call) else one
                    ),
                    "drop-last",
                    "a smaller last batch is left out: the RDU takes batches of the compiled size",
                )
                self.port.whole_batches.append((self.source.line(call), self.source.end(call)))
                self.port.points.add(
                    call,
                    "drop-last",
                    "a last batch that is smaller than the others is not trained on any more",
                    instead="nothing, if that is right; a batch size that divides the data, if not",
                    blocks=False,
                )

    def _loaders(self) -> list[cst.Call]:
        """Return the calls that make what the training goes through."""
        # A loader that nobody can follow is one of those in the file.
        made = [one for one in self.source.calls if self.source.imported(one.func) == _LOADER]
        found = [one for loop in self._loops() for one in self._makers(loop)]
        chosen = [one for one in made if one in found]
        # Loaders in a dictionary, or of a function that makes several: all of them.
        return chosen or (made if self._loops() else [])

    def _loops(self) -> list[cst.For]:
        loops = []
        for level in self.training.levels[: self.training.home + 1]:
            for above in self.source.enclosing(level.statement):
                if isinstance(above, cst.FunctionDef):
                    break
                if isinstance(above, cst.For):
                    loops.append(above)
        return loops

    def _makers(self, loop: cst.For) -> list[cst.Call]:
        found = []
        frame = self.source.frame(loop)
        for node in read_nodes(loop.iter):
            thing = self.port.bindings.resolve(frame, unit_of(node))
            values = [one.value for one in self.port.bindings.assignments(thing)]
            found += [value for value in values if isinstance(value, cst.Call)]
        return found
