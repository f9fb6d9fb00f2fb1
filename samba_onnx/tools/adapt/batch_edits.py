"""Batches that have one size only: loaders leave out a smaller last one."""

from __future__ import annotations

import libcst as cst

from samba_onnx.tools.adapt.edits import add_arguments
from samba_onnx.tools.adapt.name_units import argument, read_nodes, unit_of, walk
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.source import Frame
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
        for call in self._uneven():
            self.port.edits.rewrite(
                call,
                lambda one: (
                    add_arguments(one, drop_last="True") if isinstance(one, cst.Call) else one
                ),
                "drop-last",
                "a smaller last batch is left out: the RDU takes batches of the compiled size",
            )
            place = (self.source.line(call), self.source.column(call))
            self.port.whole_batches.append((self.source.file(call).path, *place))
            self.port.points.add(
                call,
                "drop-last",
                "a last batch that is smaller than the others is not trained on any more",
                instead="nothing, if that is right; a batch size that divides the data, if not",
                blocks=False,
            )

    def may_end(self) -> bool:
        """Whether the last batch may be smaller than the others: of a loader, or of slices."""
        slices = (node for node in walk(self.training.entry) if isinstance(node, cst.Slice))
        return bool(self._uneven()) or (
            bool(self.loops())
            and any(
                isinstance(one.upper, cst.BinaryOperation) and one.lower is not None
                for one in slices
            )
        )

    def _uneven(self) -> list[cst.Call]:
        """Return the calls of loaders whose last batch may be smaller."""
        return [
            call
            for call in self._loaders()
            if argument(call, "drop_last", 8) is None and argument(call, "batch_sampler", 4) is None
        ]

    def _loaders(self) -> list[cst.Call]:
        """Return the calls that make what the training goes through."""
        # A loader that nobody can follow is one of those in the file.
        made = [call for call in self.source.calls if self.source.imported(call.func) == _LOADER]
        found = [maker for loop in self.loops() for maker in self._makers(loop)]
        chosen = [one for one in made if one in found]
        # Loaders that nobody can follow: those that shuffle are for training.
        shuffled = [one for one in made if argument(one, "shuffle", 2) is not None]
        return chosen or ((shuffled or made) if self.loops() else [])

    def loops(self) -> list[cst.For | cst.CompFor]:
        """Return the loops that the training goes through, the innermost first."""
        loops: list[cst.For | cst.CompFor] = []
        for level in self.training.levels[: self.training.home + 1]:
            start = level.call if level.call is not None else level.statement
            for above in self.source.enclosing(start):
                if isinstance(above, cst.FunctionDef):
                    break
                if isinstance(above, cst.For):
                    loops.append(above)
                elif isinstance(above, cst.ListComp | cst.GeneratorExp):
                    loops.append(above.for_in)
        return loops

    def _makers(self, loop: cst.For | cst.CompFor) -> list[cst.Call]:
        frame = self.source.frame(loop)
        return [call for node in read_nodes(loop.iter) for call in self._made(frame, node, None, 0)]

    def _made(
        self, frame: Frame, value: cst.BaseExpression, index: int | None, depth: int
    ) -> list[cst.Call]:
        """Follow a value, or one of several, to the calls that may have made it."""
        if depth > 8:
            return []
        if isinstance(value, cst.Tuple) and index is not None:
            return self._made(frame, value.elements[index].value, None, depth + 1)
        if isinstance(value, cst.Call):
            function = self.port.bindings.callee(value)
            if function is None or function.name.value == "__init__":
                return [value]
            returned = [
                node.value
                for node in walk(function.body)
                if isinstance(node, cst.Return) and node.value
            ]
            return [
                one for part in returned for one in self._made(function, part, index, depth + 1)
            ]
        unit = unit_of(value)
        if not unit:
            return [node for node in walk(value) if isinstance(node, cst.Call)]
        thing = self.port.bindings.resolve(frame, unit)
        found = []
        for one in self.port.bindings.assignments(thing):
            if not one.repeated:
                chosen = one.index if one.index is not None else index
                found += self._made(self.source.frame(one.node), one.value, chosen, depth + 1)
        return found
