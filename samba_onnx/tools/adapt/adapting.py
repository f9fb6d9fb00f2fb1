"""From a program of plain PyTorch to one of SambaFlow: what is looked at, and in which order."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from samba_onnx.tools.adapt.accelerate_edits import AccelerateEdits
from samba_onnx.tools.adapt.accelerate_sums import with_plain_sums
from samba_onnx.tools.adapt.batch_edits import BatchEdits
from samba_onnx.tools.adapt.device_edits import DeviceEdits
from samba_onnx.tools.adapt.edits import Edits, ProgramChange
from samba_onnx.tools.adapt.graph_edits import GraphEdits
from samba_onnx.tools.adapt.host_edits import HostEdits
from samba_onnx.tools.adapt.inferred_step import inference, inferred_slice, with_named_result
from samba_onnx.tools.adapt.lightning_loop import with_lightning_loop
from samba_onnx.tools.adapt.open_points import OpenPoint, OpenPoints
from samba_onnx.tools.adapt.optimizer_edits import OptimizerEdits
from samba_onnx.tools.adapt.option_calls import with_argparse
from samba_onnx.tools.adapt.plain_form import PlainForm
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.replica_edits import ReplicaEdits
from samba_onnx.tools.adapt.restoring import Restoring, uses_sambaflow
from samba_onnx.tools.adapt.scaled_branches import with_plain_branches
from samba_onnx.tools.adapt.slicing import Slicer
from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.source_file import ProgramModule
from samba_onnx.tools.adapt.step_order import refuse_order, refuse_random
from samba_onnx.tools.adapt.trained_step import TrainedStep
from samba_onnx.tools.adapt.trainer_loop import with_trainer_loop
from samba_onnx.tools.adapt.unadaptable import refuse_arguments, refuse_frameworks, refuse_step
from samba_onnx.tools.adapt.whole_slices import with_whole_slices


@dataclass(frozen=True)
class AdaptedFile:
    """What became of one file of a program."""

    path: str
    """The file."""
    original: str
    """Its text."""
    text: str
    """The text of the adapted file."""
    compared: str = ""
    """The text with which it is compared: the original, but for a smaller last batch."""

    @property
    def is_changed(self) -> bool:
        """Whether anything of it was changed."""
        return self.original != self.text

    @property
    def diff(self) -> str:
        """The difference of both texts, as ``git apply`` takes it."""
        if not self.is_changed:
            return ""
        name = patch_name(self.path)
        lines = difflib.unified_diff(
            _lines(self.original), _lines(self.text), f"a/{name}", f"b/{name}"
        )
        # A last line without its end is marked, or the patch would not be one.
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


@dataclass(frozen=True)
class Adapted:
    """What became of a program."""

    files: tuple[AdaptedFile, ...]
    """Its files, the one that is executed first."""
    changes: tuple[ProgramChange, ...]
    """What was changed."""
    points: tuple[OpenPoint, ...]
    """What a person has to look at."""
    whole_batches: tuple[tuple[str, int, int], ...] = ()
    """File, line and column of the calls that make loaders, which now leave out a smaller last batch."""
    is_already: bool = False
    """Whether it was a SambaFlow program before."""
    infers: bool = False
    """Whether it trains nothing."""

    @property
    def path(self) -> str:
        """The file that is executed."""
        return self.files[0].path

    @property
    def original(self) -> str:
        """Its text."""
        return self.files[0].original

    @property
    def text(self) -> str:
        """Its adapted text."""
        return self.files[0].text

    @property
    def changed(self) -> tuple[AdaptedFile, ...]:
        """The files of which anything was changed."""
        return tuple(file for file in self.files if file.is_changed)

    @property
    def blocking(self) -> tuple[OpenPoint, ...]:
        """Open points for which the adapted program cannot run."""
        return tuple(point for point in self.points if point.blocks)

    @property
    def diff(self) -> str:
        """The differences of all files, as ``git apply`` takes them."""
        return "".join(file.diff for file in self.files)


def patch_name(path: str) -> str:
    """Return the name of a file in a patch: from the folder where the command runs, if it is in it."""
    with contextlib.suppress(ValueError):
        return Path(path).absolute().relative_to(Path.cwd()).as_posix()
    return Path(path).as_posix().lstrip("/")


def _lines(text: str) -> list[str]:
    """Return lines with their ends: those of git, and not all that Unicode has."""
    parts = [f"{line}\n" for line in text.split("\n")]
    parts[-1] = parts[-1][:-1]
    return parts if parts[-1] else parts[:-1]


def adapt_source(source: ProgramFile) -> Adapted:
    """Adapt one program.

    Args:
        source: The program.
    """
    # A program that cannot be adapted still shows what could be: --partial writes that.
    if uses_sambaflow(source):
        files = tuple(
            AdaptedFile(file.path, file.text, file.text, file.text) for file in source.files
        )
        return Adapted(files, (), (), is_already=True)
    form = with_plain_branches(
        with_plain_sums(with_argparse(with_trainer_loop(with_lightning_loop(PlainForm.of(source)))))
    )
    port = ProgramPort(form.source)
    refused = any(point.pattern == "framework" and point.blocks for point in form.points)
    if refused or refuse_frameworks(port):
        return _result(form, port.edits, port.points)
    if not port.search.backwards():
        return _inferring(form, port)
    training = _training(port)
    if training is not None:
        shorter = with_whole_slices(form, port, training)
        if shorter.source is not form.source:
            form, port = shorter, ProgramPort(shorter.source)
            training = _training(port)
    if training is not None:
        _plan(port, training)
    return _result(form, port.edits, port.points, port.whole_batches)


def _inferring(form: PlainForm, port: ProgramPort) -> Adapted:
    """Adapt a program that only infers."""
    form = with_named_result(form, port)
    port = ProgramPort(form.source)
    step = inference(port)
    if step is not None:
        refuse_arguments(port)
        DeviceEdits(port).plan()
        ReplicaEdits(port).plan()
        port.command_line.plan()
        cut = inferred_slice(port, step)
        refuse_random(port)
        GraphEdits(port, step, cut).plan()
        HostEdits(port, step, cut).plan()
        port.names.add_imports(port.edits)
    return replace(_result(form, port.edits, port.points), infers=step is not None)


def restore_source(source: ProgramFile) -> Adapted:
    """Write a SambaFlow program as one of plain PyTorch.

    Args:
        source: The program.
    """
    if not uses_sambaflow(source):
        files = tuple(
            AdaptedFile(file.path, file.text, file.text, file.text) for file in source.files
        )
        return Adapted(files, (), (), is_already=True)
    restoring = Restoring(source)
    restoring.plan()
    restoring.names.add_imports(restoring.edits)
    return _result(PlainForm.of(source), restoring.edits, restoring.points)


def _result(
    form: PlainForm,
    edits: Edits,
    points: OpenPoints,
    whole_batches: Sequence[tuple[str, int, int]] = (),
) -> Adapted:
    # Lines are those of the author's text, whatever form it was brought into.
    source, lines = form.source, form.lines()
    order = {one.path: place for place, one in enumerate(source.files)}
    places = [replace(one, line=lines[one.path][one.line]) for one in points.found]
    places += form.points
    made = [replace(change, line=lines[change.path][change.line]) for change in edits.changes]
    compared = form.lines(form.compared)
    files = tuple(_adapted_file(form, edits, file) for file in source.files)
    return Adapted(
        files,
        tuple(sorted(made, key=lambda one: (order[one.path], one.line))),
        tuple(sorted(places, key=lambda one: (order[one.path], one.line, one.pattern))),
        tuple((path, compared[path][line], column) for path, line, column in whole_batches),
    )


def _adapted_file(form: PlainForm, edits: Edits, file: ProgramModule) -> AdaptedFile:
    # A file without changes stays byte for byte, even where lines of it were taken apart to be read.
    text = edits.apply(file).code if edits.changes_in(file) else file.text
    return AdaptedFile(file.path, form.original[file.path], text, form.compared[file.path])


def _training(port: ProgramPort) -> TrainedStep | None:
    """Return the one training step of a program; note why there is none."""
    # One step is one graph; which of several to train is the author's to say.
    backwards = port.search.backwards()
    for other in backwards[1:]:
        port.points.add(
            other.statement,
            "several-steps",
            "the program differentiates at several places, and each step is a graph of its own; a PEF of several "
            "graphs (samba.session.compile_multigraph) takes none that trains",
            instead="add the losses up where one step trains all; else adapt each step in a program of its own, which "
            "hand weights to each other by state_dict()",
        )
    refuse_arguments(port)
    training = port.search.training(backwards[0])
    return training if refuse_step(port, training) else None


def _plan(port: ProgramPort, training: TrainedStep) -> None:
    """Plan all changes: what expressions become first, for the new module is made of them."""
    AccelerateEdits(port).plan()
    DeviceEdits(port).plan()
    ReplicaEdits(port).plan()
    BatchEdits(port, training).plan()
    cut = Slicer(port.source, port.bindings, training, port.roles, port.points).slice()
    refuse_order(port, training, cut)
    refuse_random(port)
    port.command_line.plan()
    GraphEdits(port, training, cut).plan()
    for optimizer in training.optimizers:
        OptimizerEdits(port).plan(optimizer, next(iter(port.limits.values()), ""))
    HostEdits(port, training, cut).plan()
    port.names.add_imports(port.edits)
