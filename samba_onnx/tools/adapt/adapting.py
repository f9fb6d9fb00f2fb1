"""From a program of plain PyTorch to one of SambaFlow: what is looked at, and in which order."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import libcst as cst

from samba_onnx.tools.adapt.batch_edits import BatchEdits
from samba_onnx.tools.adapt.device_edits import DeviceEdits
from samba_onnx.tools.adapt.edits import ProgramChange
from samba_onnx.tools.adapt.graph_edits import GraphEdits
from samba_onnx.tools.adapt.host_edits import HostEdits
from samba_onnx.tools.adapt.open_points import OpenPoint
from samba_onnx.tools.adapt.optimizer_edits import OptimizerEdits
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.replica_edits import ReplicaEdits
from samba_onnx.tools.adapt.slicing import Slicer
from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.trained_step import TrainedStep
from samba_onnx.tools.adapt.unadaptable import refuse_arguments, refuse_frameworks, refuse_step


@dataclass(frozen=True)
class Adapted:
    """What became of a program."""

    path: str
    """The program."""
    original: str
    """Its text."""
    text: str
    """The text of the adapted program."""
    changes: tuple[ProgramChange, ...]
    """What was changed."""
    points: tuple[OpenPoint, ...]
    """What a person has to look at."""
    whole_batches: tuple[tuple[int, int], ...] = ()
    """Line and column of the calls that make loaders, which now leave out a smaller last batch."""
    is_already: bool = False
    """Whether it was a SambaFlow program before."""

    @property
    def blocking(self) -> tuple[OpenPoint, ...]:
        """Open points for which the adapted program cannot run."""
        return tuple(point for point in self.points if point.blocks)

    @property
    def diff(self) -> str:
        """The difference of both texts, as ``git apply`` takes it."""
        return "".join(
            difflib.unified_diff(
                self.original.splitlines(keepends=True),
                self.text.splitlines(keepends=True),
                f"a/{self.path.lstrip(chr(47))}",
                f"b/{self.path.lstrip(chr(47))}",
            )
        )


def adapt_source(source: ProgramFile) -> Adapted:
    """Adapt one program that is one file.

    Args:
        source: The program.
    """
    # A program that cannot be adapted still shows what could be: --partial writes that.
    original = source.text
    if is_sambaflow(source):
        return Adapted(source.path, original, original, (), (), is_already=True)
    port = ProgramPort(source)
    training = _training(port)
    if training is not None:
        _plan(port, training)
    points = tuple(sorted(port.points.found, key=lambda one: (one.line, one.pattern)))
    changes = tuple(sorted(port.edits.changes, key=lambda one: one.line))
    text = port.edits.apply().code
    return Adapted(source.path, original, text, changes, points, tuple(port.whole_batches))


def is_sambaflow(source: ProgramFile) -> bool:
    """Whether a program imports SambaFlow, or this product under its names."""
    for node in source.nodes:
        if isinstance(node, cst.Import | cst.ImportFrom):
            words = source.code(node).replace(",", " ").split()
            if any(word.partition(".")[0] in {"sambaflow", "samba_onnx"} for word in words[1:]):
                return True
    return False


def _training(port: ProgramPort) -> TrainedStep | None:
    """Return the one training step of a program; note why there is none."""
    # One step is one graph; which of several to train is the author's to say.
    if refuse_frameworks(port):
        return None
    backwards = port.search.backwards()
    if not backwards:
        port.points.add(
            port.source.module,
            "no-training",
            "there is no backward pass in this file",
            instead="give the file that has the training loop; of inference, compile with `samba-port convert`",
        )
        return None
    for other in backwards[1:]:
        port.points.add(
            other.statement,
            "several-steps",
            "the program differentiates at several places, and each step is a graph of its own",
            instead="adapt each of them in a program of its own",
        )
    refuse_arguments(port)
    training = port.search.training(backwards[0])
    return training if refuse_step(port, training) else None


def _plan(port: ProgramPort, training: TrainedStep) -> None:
    """Plan all changes: what expressions become first, for the new module is made of them."""
    DeviceEdits(port).plan()
    ReplicaEdits(port).plan()
    BatchEdits(port, training).plan()
    cut = Slicer(port.source, port.bindings, training, port.roles, port.points).slice()
    port.command_line.plan()
    GraphEdits(port, training, cut).plan()
    for optimizer in training.optimizers:
        OptimizerEdits(port).plan(optimizer, next(iter(port.limits.values()), ""))
    HostEdits(port, training, cut).plan()
    port.names.add_imports(port.edits)
