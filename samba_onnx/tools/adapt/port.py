"""What all planners of changes share: the program, what is known of it, and what was decided so far."""

from __future__ import annotations

import libcst as cst

from samba_onnx.safety.files import printable
from samba_onnx.tools.adapt.bindings import Bindings
from samba_onnx.tools.adapt.command_edits import CommandLine
from samba_onnx.tools.adapt.edits import Edits, _Writer
from samba_onnx.tools.adapt.flow import Flow
from samba_onnx.tools.adapt.graph_code import substituted
from samba_onnx.tools.adapt.name_units import argument, attribute_name, reads, unit_of, walk
from samba_onnx.tools.adapt.open_points import OpenPoints
from samba_onnx.tools.adapt.program_imports import Names
from samba_onnx.tools.adapt.roles import StepPart
from samba_onnx.tools.adapt.source import Frame, ProgramFile
from samba_onnx.tools.adapt.source_file import ProgramModule
from samba_onnx.tools.adapt.trained_step import Optimizer, Search, TrainedStep


def is_scheduler(name: str) -> bool:
    """Whether an imported function or class changes the rate of an optimizer, by its name."""
    last = name.rpartition(".")[2].lower()
    return name.startswith("torch.optim.lr_scheduler.") or any(
        word in last for word in ("schedul", "warmup", "lr")
    )


class ProgramPort:
    """A program on its way to SambaFlow."""

    def __init__(self, source: ProgramFile) -> None:
        self.source = source
        self.bindings = Bindings(source)
        self.search = Search(source, self.bindings)
        self.roles = self.search.roles
        self.names = Names(source)
        self.edits = Edits(source)
        self.points = OpenPoints(source)
        self.command_line = CommandLine(source, self.bindings, self.names, self.edits, self.points)
        self.whole_batches: list[tuple[str, int, int]] = []
        """File, line and column of calls whose loaders leave out a smaller last batch."""
        self.limits: dict[str, str] = {}
        """By which norm gradients are clipped, as code where the optimizer is made."""

    def flow(self, training: TrainedStep) -> Flow:
        """Return the values of a training step, as its home level sees them."""
        return Flow(self.source, self.bindings, training)

    def arguments(self, frame: Frame) -> str:
        """Return the variable that holds the command line in a function."""
        return self.command_line.variable(frame)

    def rewritten(self, statement: cst.BaseStatement) -> list[cst.BaseStatement]:
        """Return a statement with the changes that were planned inside of it: none, if nothing is left."""
        changed = statement.visit(_Writer(self.edits, self.source.file(statement)))
        if isinstance(changed, cst.FlattenSentinel):
            return list(changed)
        return [changed] if isinstance(changed, cst.BaseStatement) else []

    def changed(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """Return an expression with the changes that were planned inside of it."""
        changed = node.visit(_Writer(self.edits, self.source.file(node)))
        assert isinstance(changed, cst.BaseExpression)
        return changed

    def generators(self, file: ProgramModule) -> list[str]:
        """Return the generators besides torch's that the program draws from, as a file of it names them.

        Args:
            file: The file, which imports what it lacks.
        """
        # By what is imported: a generator object of its own is the program's, and is drawn from in both runs alike.
        found: list[str] = []
        for node in self.source.nodes:
            name = self.source.imported(node) if isinstance(node, cst.Attribute) else ""
            if name.startswith(("numpy.random.", "random.")):
                text = self.source.code(node).rpartition(".")[0]
                if text not in found and text.rpartition(".")[2] == "random":
                    self.names.borrow(text.partition(".")[0], self.source.file(node), file)
                    found.append(text)
        return found

    def borrowed(self, name: str, frame: Frame, file: ProgramModule) -> None:
        """Let new code in a file read a name of another one; note where that is not possible.

        Args:
            name: The name.
            frame: Where the program reads it.
            file: The file with the new code.
        """
        owner = self.source.file(frame)
        if not self.names.borrow(name, owner, file):
            self.points.add(
                file.module,
                "other-file",
                f"the first batch needs `{name}` of {printable(owner.path)}, which this file cannot import",
                instead=f"give `{name}` another name, or keep it in a file that imports neither",
            )

    def is_distributed(self) -> bool:
        """Whether the program trains several replicas."""
        return any(
            self.source.imported(call.func) == "torch.distributed.init_process_group"
            for call in self.source.calls
        )

    def schedules(self) -> bool:
        """Whether the program changes a learning rate while it trains."""
        # Schedulers, and the loop over param_groups that people write instead.
        for node in self.source.nodes:
            if isinstance(node, cst.Call) and is_scheduler(self.source.imported(node.func)):
                return True
            target = node.target if isinstance(node, cst.AssignTarget) else None
            key = self.source.code(target.slice[0]) if isinstance(target, cst.Subscript) else ""
            if key.strip("'\"") == "lr":
                return True
        return False

    def has_groups(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer is given groups of parameters with settings of their own."""
        given = argument(optimizer.call, "params", 0)
        if given is None:
            return False
        values: list[cst.BaseExpression] = [given.value]
        unit = unit_of(given.value)
        if unit:
            frame = self.source.frame(optimizer.call)
            made = self.bindings.assignments(self.bindings.thing(frame, unit))
            values += [one.value for one in made]
        return any(isinstance(node, cst.Dict) for value in values for node in walk(value))

    def clipping(self, part: StepPart, training: TrainedStep) -> str:
        """Return the largest norm of gradients as an expression where the optimizer is made.

        Args:
            part: The statement that clips.
            training: The step.

        Returns:
            The expression; empty, with an open point, if it cannot be said there.
        """
        # A condition around it becomes a condition on the limit: None does not clip.
        assert part.call is not None
        limit = argument(part.call, "max_norm", 1)
        assert limit is not None
        code = self.source.code(limit.value)
        above = self.source.around(part.statement)
        own = [limit.value]
        # accelerate's question whether this batch steps: every one does.
        asks = isinstance(above, cst.If) and attribute_name(above.test) == "sync_gradients"
        if isinstance(above, cst.If) and len(above.body.body) == 1 and not asks:
            code = f"{code} if {self.source.code(above.test)} else None"
            own.append(above.test)
        unknown = [unit for unit in reads(*own) if not self._is_known(unit, training, part)]
        codes = {unit: self._number(self.source.frame(part.statement), unit) for unit in unknown}
        if self._whole_model(part, training) and all(codes.values()):
            return self.source.module.code_for_node(substituted(cst.parse_expression(code), codes))
        self.points.add(
            part.statement,
            "clipping",
            "the optimizer of the RDU clips all gradients that it steps, by a norm that is known "
            "where it is made",
            instead="give max_grad_norm to the optimizer yourself",
        )
        return ""

    def _number(self, frame: Frame, unit: str) -> str:
        """Return the number that a constant of the program is; an empty text if it may be another one."""
        # exec() and globals() are how programs overwrite their constants from outside.
        made = self.bindings.assignments(self.bindings.thing(frame, unit))
        if any(unit_of(call.func) in {"exec", "globals"} for call in self.source.calls):
            return ""
        is_number = len(made) == 1 and isinstance(made[0].value, cst.Integer | cst.Float)
        return self.source.code(made[0].value) if is_number else ""

    def _whole_model(self, part: StepPart, training: TrainedStep) -> bool:
        value = part.subject
        if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
            return False
        owner = unit_of(value.func.value)
        frame = self.source.frame(part.statement)
        return [self.bindings.resolve(frame, owner)] == [*training.models]

    def _is_known(self, unit: str, training: TrainedStep, part: StepPart) -> bool:
        """Whether a unit means the same where the optimizer is made."""
        call = training.optimizers[0].call
        here = self.bindings.thing(self.source.frame(part.statement), unit)
        there = self.bindings.thing(self.source.frame(call), unit)
        if here != there:
            resolved = self.bindings.resolve(self.source.frame(part.statement), unit)
            if resolved != self.bindings.resolve(self.source.frame(call), unit):
                return False
        made = self.bindings.assignments(there)
        return all(self.source.line(one.node) < self.source.line(call) for one in made)
