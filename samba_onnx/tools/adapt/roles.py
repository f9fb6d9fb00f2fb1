"""What a statement of a training step is there for: zeroing, differentiating, clipping, stepping."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import libcst as cst

from samba_onnx.tools.adapt.name_units import argument, attribute_name, root_unit, unit_of, walk
from samba_onnx.tools.adapt.source import ProgramFile

CLIPPING = "torch.nn.utils.clip_grad_norm_"
_CLIPPINGS = frozenset({CLIPPING, "torch.nn.utils.clip_grad.clip_grad_norm_"})


class Role(enum.Enum):
    """What a run on the RDU does itself."""

    ZERO = "zero_grad"
    BACKWARD = "backward"
    CLIP = "clip_grad_norm_"
    STEP = "step"
    SCALER = "the scaler's work"
    FORWARD = "the model's call"


@dataclass(frozen=True)
class StepPart:
    """A statement of a training step."""

    role: Role
    statement: cst.BaseStatement
    call: cst.Call | None
    subject: cst.BaseExpression | None
    """What is zeroed, differentiated, clipped or stepped."""


class StepRoles:
    """The roles of a program's statements."""

    def __init__(
        self, source: ProgramFile, optimizers: frozenset[str], scalers: frozenset[str]
    ) -> None:
        """Take what the program calls its objects.

        Args:
            source: The program.
            optimizers: Last names of everything that holds an optimizer.
            scalers: Last names of everything that holds a gradient scaler.
        """
        self.source = source
        self._optimizers = optimizers
        self._scalers = scalers

    def of(self, statement: cst.BaseStatement) -> StepPart | None:
        """Return the part that a statement plays in a training step; None if it plays none."""
        # Only whole lines have a role: a call inside of an expression is used for its value.
        if isinstance(statement, cst.For):
            return self._loop(statement)
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return None
        small = statement.body[0]
        value = small.value if isinstance(small, cst.Expr | cst.Assign) else None
        if not isinstance(value, cst.Call):
            return None
        return self._call(statement, value)

    def _call(self, statement: cst.BaseStatement, call: cst.Call) -> StepPart | None:
        # By the last name: what has a method backward or zero_grad is a tensor, a module or an optimizer.
        if self.source.imported(call.func) in _CLIPPINGS:
            first = argument(call, "parameters", 0)
            return StepPart(Role.CLIP, statement, call, first.value if first else None)
        name = attribute_name(call.func)
        if not isinstance(call.func, cst.Attribute):
            return None
        owner = call.func.value
        if self._is(owner, self._scalers):
            return self._scaler(statement, call, name)
        if name == "clip_grad_norm_":  # accelerator.clip_grad_norm_
            first = argument(call, "parameters", 0)
            return StepPart(Role.CLIP, statement, call, first.value if first else None)
        if name == "zero_grad":
            return StepPart(Role.ZERO, statement, call, owner)
        if name == "backward":
            return self._backward(statement, call, owner)
        if name == "step" and self._is(owner, self._optimizers):
            return StepPart(Role.STEP, statement, call, owner)
        return None

    def _backward(
        self, statement: cst.BaseStatement, call: cst.Call, owner: cst.BaseExpression
    ) -> StepPart:
        # torch.autograd.backward(loss), accelerator.backward(loss): the loss is the argument.
        if call.args and (self.source.imported(owner) or unit_of(owner).endswith("accelerator")):
            return StepPart(Role.BACKWARD, statement, call, call.args[0].value)
        # scaler.scale(loss).backward()
        scaled = isinstance(owner, cst.Call) and attribute_name(owner.func) == "scale"
        if scaled and isinstance(owner, cst.Call) and owner.args:
            owner = owner.args[0].value
        return StepPart(Role.BACKWARD, statement, call, owner)

    def _scaler(self, statement: cst.BaseStatement, call: cst.Call, name: str) -> StepPart | None:
        # scaler.step(optimizer) steps the optimizer, the rest only keeps half precision from underflow.
        if name == "step" and call.args:
            return StepPart(Role.STEP, statement, call, call.args[0].value)
        return (
            StepPart(Role.SCALER, statement, call, None) if name in {"update", "unscale_"} else None
        )

    def _loop(self, statement: cst.For) -> StepPart | None:
        """Find ``for p in model.parameters(): p.grad = None``."""
        # The idiom of people who profile: set_to_none, before zero_grad had it.
        targets = [
            node.target for node in walk(statement.body) if isinstance(node, cst.AssignTarget)
        ]
        lines = statement.body.body
        if len(lines) != 1 or [attribute_name(target) for target in targets] != ["grad"]:
            return None
        return StepPart(Role.ZERO, statement, None, statement.iter)

    def _is(self, owner: cst.BaseExpression, names: frozenset[str]) -> bool:
        # step() is a method of schedulers and profilers, too: a name that holds no optimizer is none.
        return unit_of(owner).rpartition(".")[2] in names or (
            isinstance(owner, cst.Subscript) and root_unit(owner).rpartition(".")[2] in names
        )
