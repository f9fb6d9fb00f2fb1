"""Which statements of a training step the RDU computes, and what goes in and comes out of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from samba_onnx.tools.adapt.bindings import Bindings
from samba_onnx.tools.adapt.carried_states import carried_states, with_states_last
from samba_onnx.tools.adapt.flow import Flow
from samba_onnx.tools.adapt.graph_code import substituted
from samba_onnx.tools.adapt.name_units import (
    attribute_name,
    needs_before,
    own_writes,
    reads,
    unit_of,
    walk,
    writes,
)
from samba_onnx.tools.adapt.open_points import OpenPoints
from samba_onnx.tools.adapt.roles import Role, StepRoles
from samba_onnx.tools.adapt.slice_values import Input, Output, Part, SliceValues
from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.trained_step import TrainedStep

_MODES = frozenset({"train", "eval", "zero_grad"})


@dataclass(frozen=True)
class Slice:
    """What of a training step becomes one graph."""

    moved: tuple[cst.BaseStatement, ...]
    """Statements that the RDU computes, in their order."""
    models: tuple[str, ...]
    """Units of the modules that they call."""
    inputs: tuple[Input, ...]
    """What each step has new values of, and tensors that the program made."""
    constants: tuple[str, ...]
    """Units that are the same in all steps, as a criterion."""
    outputs: tuple[Output, ...]
    """What they compute and the program looks at later, without the loss."""
    renamed: tuple[tuple[Part, str], ...]
    """Parts of an object that stays in the graph, and the variables that have them now."""
    loss: str
    """The unit that is differentiated; ``loss`` for an expression without a name."""
    loss_is_read: bool
    """Whether the program looks at the loss."""
    place: cst.BaseStatement | None
    """The statement in whose place the RDU runs."""
    condition: cst.BaseExpression | None
    """The condition under which a step trains, where others of the same loop do not."""


class Slicer:
    """Cuts the graph out of a training step."""

    def __init__(
        self,
        source: ProgramFile,
        bindings: Bindings,
        training: TrainedStep,
        roles: StepRoles,
        points: OpenPoints,
    ) -> None:
        self.source = source
        self.bindings = bindings
        self.training = training
        self.roles = roles
        self.points = points
        self.flow = Flow(source, bindings, training)
        self.values = SliceValues(self.flow)

    def slice(self) -> Slice:
        """Return the part of the step that the RDU computes."""
        # First what is moved; all else follows from what those statements read and write.
        before = list(self._before(self.training.backward.statement))
        expression = self.training.backward.subject
        assert expression is not None
        tainted = self._tainted(before)
        moved = self._moved(before, expression, tainted)
        free = self._free(moved, expression)
        models = tuple(unit for unit in free if self.is_model(unit))
        if not models and not any(map(self.values.calls_model, (*moved, expression))):
            self._refuse_other_model()
        inputs = carried_states(self, self.values.inputs(moved, expression, models), moved)
        varying = {unit for one in inputs for unit in reads(one.node)}
        own = {unit_of(one.node) for one in inputs}
        inside = self._read_inside(moved, expression, inputs)
        rest = [unit for unit in free if unit not in models and unit in inside and unit not in own]
        later = self._read_later(moved)
        loss = unit_of(expression) or self._loss_name(free, moved)
        self._refuse_decisions(moved, varying)
        computed = [unit for unit in writes(*moved) if unit in later and unit != loss]
        outputs, renamed = self.values.outputs(computed, expression, loss, moved)
        outputs = with_states_last(outputs, inputs)
        return Slice(
            moved=moved,
            models=models,
            inputs=inputs,
            constants=tuple(unit for unit in rest if not self.values.is_global(unit)),
            outputs=outputs,
            renamed=renamed,
            loss=loss,
            loss_is_read=loss in later or any(name == loss for _, name in renamed),
            place=self._place(moved, before, varying),
            condition=self._condition(moved),
        )

    def _loss_name(self, free: list[str], moved: tuple[cst.BaseStatement, ...]) -> str:
        # Programs call their criterion loss, often.
        return "step_loss" if "loss" in {*free, *writes(*moved)} else "loss"

    def _free(self, moved: tuple[cst.BaseStatement, ...], loss: cst.BaseExpression) -> list[str]:
        """Return the units that moved statements read and do not compute."""
        written = writes(*moved)
        return [
            unit
            for unit in reads(*moved, loss)
            if unit not in written or self._is_carried(unit, moved)
        ]

    def _read_inside(
        self,
        moved: tuple[cst.BaseStatement, ...],
        loss: cst.BaseExpression,
        inputs: tuple[Input, ...],
    ) -> set[str]:
        """Return the units that are read where no input stands for them."""
        texts = {self.source.code(one.node): one.name for one in inputs}
        return set(reads(*(substituted(node, texts) for node in (*moved, loss))))

    def is_model(self, unit: str) -> bool:
        """Whether a unit of the step's function is one of the modules that are trained."""
        return self.bindings.resolve(self.training.frame, unit) in self.training.models

    def _before(self, statement: cst.BaseStatement) -> Iterator[cst.BaseStatement]:
        """Yield what one iteration, or one call, executes before a statement."""
        # Conditions around the backward pass are passed by: what stands before them is executed as well.
        above = self.source.around(statement)
        if above is not None and not isinstance(above, cst.For | cst.While):
            yield from self._before(above)
        for one in self.source.preceding(statement):
            yield from _opened(one)

    def _is_carried(self, unit: str, moved: tuple[cst.BaseStatement, ...]) -> bool:
        """Whether a unit is read by the first statement that writes it, as in ``loss += x``."""
        # `loss += x` in the first moved statement needs the loss from before the step.
        return bool(needs_before(moved, unit))

    def _tainted(self, before: list[cst.BaseStatement]) -> dict[cst.BaseStatement, bool]:
        """Say of each statement whether it needs what a model computes."""
        # Forwards, as values flow: whoever reads a tainted value taints what it writes.
        known: set[str] = set()
        found = {}
        for one in before:
            if self.roles.of(one) is not None or self._is_mode(one):
                found[one] = False
                continue
            found[one] = any(unit in known or self.is_model(unit) for unit in reads(one)) or (
                self.values.calls_model(one)
            )
            changed = set(writes(one))
            known = known | changed if found[one] else known - changed
        return found

    def _is_mode(self, statement: cst.BaseStatement) -> bool:
        """Whether a statement only says ``model.train()`` or the like."""
        line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        value = line.value if isinstance(line, cst.Expr) else None
        return isinstance(value, cst.Call) and attribute_name(value.func) in _MODES

    def _moved(
        self,
        before: list[cst.BaseStatement],
        loss: cst.BaseExpression,
        tainted: dict[cst.BaseStatement, bool],
    ) -> tuple[cst.BaseStatement, ...]:
        """Return the statements that the loss needs and that need a model."""
        # Backwards from the loss: metrics need the model, too, but the loss does not need them.
        needed = dict(reads(loss))
        moved: list[cst.BaseStatement] = []
        for one in reversed(before):
            if any(unit in needed for unit in writes(one)) and tainted[one]:
                moved.insert(0, one)
                needed |= reads(one)
            elif isinstance(one, cst.SimpleStatementLine):
                # What the host computes anew has nothing of what stood there before.
                for unit in _assigned(one):
                    needed.pop(unit, None)
        return tuple(moved)

    def _read_later(self, moved: tuple[cst.BaseStatement, ...]) -> set[str]:
        """Return the units that anything of the step's function reads that the RDU does not compute."""
        # Also what stands above in the text: a loop comes back to it.
        gone = {*moved, *(part.statement for part in self.training.parts)}
        frame = self.training.frame
        found: set[str] = set()
        for statement in self.source.statements(frame):
            found |= self._read_outside(statement, gone)
        return found

    def _read_outside(self, node: cst.CSTNode, gone: set[cst.BaseStatement]) -> set[str]:
        if node in gone or isinstance(node, cst.FunctionDef | cst.ClassDef):
            return set()
        inner = [one for one in walk(node) if one in gone]
        if not inner:
            return set(reads(node))
        return {unit for child in node.children for unit in self._read_outside(child, gone)}

    def _place(
        self,
        moved: tuple[cst.BaseStatement, ...],
        before: list[cst.BaseStatement],
        inputs: Iterable[str],
    ) -> cst.BaseStatement | None:
        """Return where the RDU runs: at the first statement that it computes, or after the last input."""
        # As early as inputs allow, so that metrics between forward and backward find the outputs.
        if not moved:
            return None
        step = self._late_step(moved, before)
        if step is not None:
            return step
        first = before.index(moved[0])
        between = [one for one in before[first:] if one not in moved]
        late = [one for one in between if self._is_late(one, moved, before, inputs)]
        if not late:
            return moved[0]
        after = [one for one in moved if before.index(one) > before.index(late[-1])]
        written = writes(*moved)
        for one in before[first : before.index(late[-1]) + 1]:
            if (
                one not in moved
                and self.roles.of(one) is None
                and any(unit in written for unit in reads(one))
            ):
                self.points.add(
                    one,
                    "host-work-between",
                    "it needs what the model computes, and the loss needs what follows it: the RDU "
                    "computes model and loss in one go",
                    instead="compute it in forward, or after the loss",
                )
        return after[0] if after else self.training.backward.statement

    def _is_late(
        self,
        one: cst.BaseStatement,
        moved: tuple[cst.BaseStatement, ...],
        before: list[cst.BaseStatement],
        inputs: Iterable[str],
    ) -> bool:
        """Whether a statement gives an input what the rest of the step reads, and not the next step."""
        place = before.index(one)
        earlier = [other for other in moved if before.index(other) < place]
        later = [other for other in moved if before.index(other) > place]
        loss = self.training.backward.subject
        assert loss is not None
        late = [
            unit for unit in inputs if unit in writes(one) and needs_before([*later, loss], unit)
        ]
        for unit in late:
            if unit in reads(*earlier):
                self.points.add(
                    one,
                    "host-work-between",
                    f"`{unit}` has one value before this and another behind it, and the step reads both",
                    instead="give the second value a name of its own",
                )
        return bool(late)

    def _late_step(
        self, moved: tuple[cst.BaseStatement, ...], before: list[cst.BaseStatement]
    ) -> cst.BaseStatement | None:
        """Return the statement that steps, if a rate is set between the forward pass and it."""
        block = list(self.source.block(self.training.backward.statement))
        begin = block.index(self.training.backward.statement)
        steps = [
            one
            for one in block[begin:]
            for part in [self.roles.of(one)]
            if part is not None and part.role is Role.STEP
        ]
        if not steps:
            return None
        after = block[begin + 1 : block.index(steps[0])]
        between = [one for one in before[before.index(moved[0]) :] if one not in moved] + after
        kept = [one for one in between if self.roles.of(one) is None]
        if not any(self._sets_rate(one) for one in kept):
            return None
        written = {*writes(*moved)}
        for one in kept:
            if written & set(reads(one)):
                self.points.add(
                    one,
                    "rate-before-step",
                    "a rate is set between forward pass and step, and this needs what the forward pass computes",
                    instead="set the rate before the forward pass",
                )
        return steps[0]

    def _sets_rate(self, statement: cst.BaseStatement) -> bool:
        """Whether a statement changes the numbers of an optimizer, itself or by a scheduler."""
        code = self.source.code(statement)
        return "param_groups" in code or ".step(" in code

    def _condition(self, moved: tuple[cst.BaseStatement, ...]) -> cst.BaseExpression | None:
        """Return the condition of a backward pass whose forward pass is computed without it, too."""
        # Phases of one loop: the same forward pass is trained in one and only looked at in the other.
        outer = {self.source.around(one) for one in moved}
        tests: list[cst.BaseExpression] = []
        node: cst.BaseStatement | None = self.training.backward.statement
        while node is not None and not isinstance(node, cst.For | cst.While):
            above = self.source.around(node)
            inside = above is not None and any(self.source.contains(above, one) for one in moved)
            if isinstance(above, cst.If) and not inside and moved:
                tests.append(above.test)
            node = above
        if not tests or not outer:
            return None
        written = writes(*moved)
        if any(unit in written for test in tests for unit in reads(test)):
            self.points.add(
                self.training.backward.statement,
                "conditional-backward",
                "whether this step trains depends on what the model computed",
                instead="train in every step, or decide before the forward pass",
            )
        return tests[0] if len(tests) == 1 else None

    def _refuse_other_model(self) -> None:
        """Refuse a loss that is not computed by what the optimizer steps, as where a library stands between them."""
        self.points.add(
            self.training.backward.statement,
            "no-model",
            "what is differentiated does not come from the module whose parameters the optimizer has",
            instead="call that module itself, and give the optimizer its parameters",
        )

    def _refuse_decisions(self, moved: tuple[cst.BaseStatement, ...], inputs: set[str]) -> None:
        """Refuse branches and loops by values that change, and calls for their effect: a graph is traced once."""
        # A condition that stays the same is decided by the trace once and rightly.
        for one in moved:
            for node in walk(one):
                test = getattr(node, "test", None)
                if isinstance(test, cst.BaseExpression) and set(reads(test)) & inputs:
                    self.points.add(
                        node,
                        "changing-branch",
                        "the branch would be decided once, when the graph is traced, and its condition changes",
                        instead="compute both and choose by torch.where, or by a factor of 0 or 1",
                    )
                count = node.iter if isinstance(node, cst.For) else None
                if isinstance(count, cst.Call) and set(reads(*count.args)) & inputs:
                    self.points.add(
                        count,
                        "changing-branch",
                        "how often this loop runs would be decided once, when the graph is traced, and it may change",
                        instead="let it run a number of times that is known where the model is made",
                    )
                if isinstance(node, cst.Expr) and self._is_for_effect(node):
                    self.points.add(
                        node,
                        "effect",
                        "it is called for what it changes, in the midst of what the RDU computes in one go",
                        instead="return what it computes, and go on with that",
                    )

    def _is_for_effect(self, line: cst.Expr) -> bool:
        """Whether a line is a call whose result nobody takes, and which changes no list or tensor that is known."""
        return isinstance(line.value, cst.Call) and not list(own_writes(line))


def _assigned(line: cst.SimpleStatementLine) -> Iterator[str]:
    """Yield the names that a line gives new values as a whole."""
    for part in line.body:
        for one in part.targets if isinstance(part, cst.Assign) else ():
            target = one.target
            each = [e.value for e in target.elements] if isinstance(target, cst.Tuple) else [target]
            # Not a part of something, whose other parts stay.
            yield from (name.value for name in each if isinstance(name, cst.Name))


def _opened(statement: cst.BaseStatement) -> Iterator[cst.BaseStatement]:
    """Yield a statement, or those of its block if it is a ``with``, which decides nothing."""
    if isinstance(statement, cst.With) and isinstance(statement.body, cst.IndentedBlock):
        for one in statement.body.body:
            yield from _opened(one)
    else:
        yield statement
