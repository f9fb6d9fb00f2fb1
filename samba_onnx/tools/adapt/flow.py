"""Which values change from step to step, and where those that do not can be read at the home level."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from samba_onnx.tools.adapt.bindings import Assignment, Bindings, Thing
from samba_onnx.tools.adapt.name_units import SELF, reads, unit_of, walk
from samba_onnx.tools.adapt.source import Frame, ProgramFile
from samba_onnx.tools.adapt.trained_step import TrainedStep

_NUMBERS = frozenset({"min", "max", "float", "int", "len", "round", "sum", "abs", "bool"})

_NO_TENSORS = (
    "torch.nn.",
    "torch.optim.",
    "torch.utils.",
    "torch.device",
    "torch.cuda.",
    "torch.Generator",
    "torch.distributed.",
    "torch.amp.",
)
"""Where torch keeps what are no functions that return tensors."""


@dataclass(frozen=True)
class Origin:
    """Where a value comes from."""

    varies: bool
    """Whether it can differ from one step to the next."""
    code: str
    """An expression of the home level that has it; empty where there is none."""


class Flow:
    """The values of a training step, as its home level sees them."""

    def __init__(self, source: ProgramFile, bindings: Bindings, training: TrainedStep) -> None:
        self.source = source
        self.bindings = bindings
        self.training = training

    def origin(self, unit: str, level: int = 0) -> Origin:
        """Return where the value of a unit comes from.

        Args:
            unit: A unit of the frame of a level.
            level: The level's place, counted from that of the backward pass.
        """
        # Attributes are looked at by their class: who assigns them may be any of its methods.
        frame = self.training.levels[level].frame
        thing = self.bindings.thing(frame, unit)
        if isinstance(thing.owner, cst.ClassDef):
            return self._attribute(thing, unit, level)
        criterion = self._criterion(thing)
        if criterion:
            return Origin(False, criterion)
        if thing.owner is not frame or level >= self.training.home:
            return Origin(any(map(self._is_repeated, self.bindings.assignments(thing))), unit)
        if self.bindings.assignments(thing):
            return self._local(thing)
        return self._argument(unit, level)

    def _is_repeated(self, one: Assignment) -> bool:
        """Whether training executes an assignment again and again."""
        # A value counts as changing if any assignment to it can be executed between two steps.
        if self.source.contains(self.training.entry, one.node):
            return True
        below = [level.frame for level in self.training.levels[: self.training.home]]
        return self.source.frame(one.node) in below

    def _attribute(self, thing: Thing, unit: str, level: int) -> Origin:
        # What __init__ alone assigns stays; a method may be called at any time.
        made = [
            self.source.frame(assignment.node) for assignment in self.bindings.assignments(thing)
        ]
        varies = any(
            isinstance(frame, cst.FunctionDef) and frame.name.value != "__init__" for frame in made
        )
        for place in range(level, self.training.home):
            call = self.training.levels[place + 1].call
            owner = call.func.value if call and isinstance(call.func, cst.Attribute) else None
            if owner is None or unit_of(owner) == SELF:
                continue
            # `trainer.train()`: what the method calls `self.model` is `trainer.model` out here.
            return Origin(varies, f"{self.source.code(owner)}.{unit.partition('.')[2]}")
        return Origin(varies, unit)

    def _criterion(self, thing: Thing) -> str:
        """Return the code of a criterion that each step makes anew of the same values; empty for all else."""
        # A criterion that every call makes anew is always the same one.
        made = self.bindings.assignments(thing)
        if len(made) != 1 or made[0].index is not None or made[0].repeated:
            return ""
        value = made[0].value
        name = self.source.imported(getattr(value, "func", value))
        again = self._is_repeated(made[0]) or isinstance(thing.owner, cst.FunctionDef)
        known = not any(self._has_value(thing_frame(thing), unit) for unit in reads(value))
        # Modules with weights are made once, or they would never learn.
        is_loss = name.startswith("torch.nn.") and name.rpartition(".")[2].endswith("Loss")
        return self.source.code(value) if again and known and is_loss else ""

    def _has_value(self, frame: Frame, unit: str) -> bool:
        """Whether a unit is a variable, and no import or constant of the module."""
        thing = self.bindings.thing(frame, unit)
        return not thing.is_global or bool(self.bindings.assignments(thing))

    def _local(self, thing: Thing) -> Origin:
        made = self.bindings.assignments(thing)
        value = made[0].value
        # A criterion that every call makes anew is always the same one.
        known = len(made) == 1 and made[0].index is None and not made[0].repeated
        frame = thing_frame(thing)
        own = [unit for unit in reads(value) if not self.bindings.thing(frame, unit).is_global]
        if (
            known
            and not own
            and self.source.imported(getattr(value, "func", value)).startswith("torch.nn.")
        ):
            return Origin(False, self.source.code(value))
        return Origin(True, "")

    def _argument(self, unit: str, level: int) -> Origin:
        # The argument's own parts decide: `train(model, epoch)` varies because epoch does.
        above = self.training.levels[level + 1]
        frame = self.training.levels[level].frame
        if above.call is None or not isinstance(frame, cst.FunctionDef):
            return Origin(True, "")
        value = self.bindings.passed(above.call, frame).get(unit)
        if value is None:
            return Origin(True, "")
        parts = {read: self.origin(read, level + 1) for read in reads(value)}
        varies = any(part.varies for part in parts.values()) or self._is_made_anew(value)
        if unit_of(value):
            return Origin(varies, parts[unit_of(value)].code)
        same = all(part.code == one for one, part in parts.items())
        return Origin(varies, self.source.code(value) if same else "")

    def _is_made_anew(self, value: cst.BaseExpression) -> bool:
        """Whether an argument is computed in each call that training makes, as a batch that is drawn."""
        calls = [node for node in walk(value) if isinstance(node, cst.Call)]
        own = [
            call for call in calls if not self.source.imported(call.func).startswith("torch.nn.")
        ]
        below = [level.frame for level in self.training.levels[: self.training.home]]
        return any(
            self.source.contains(self.training.entry, one) or self.source.frame(one) in below
            for one in own
        )

    def is_number(self, unit: str, level: int = 0) -> bool:
        """Whether a value is surely a number of Python, and no tensor."""
        # Where the text does not say, it is a tensor: a number then fails loudly when it is named.
        thing = self.bindings.thing(self.training.levels[level].frame, unit)
        made = self.bindings.assignments(thing)
        if made:
            return any(self._makes_number(one) for one in made)
        above = self.training.levels[min(level + 1, len(self.training.levels) - 1)]
        frame = self.training.levels[level].frame
        if (
            above.call is None
            or not isinstance(frame, cst.FunctionDef)
            or level >= self.training.home
        ):
            return False
        value = self.bindings.passed(above.call, frame).get(unit)
        return (
            value is not None and bool(unit_of(value)) and self.is_number(unit_of(value), level + 1)
        )

    def is_tensor(self, unit: str, level: int = 0) -> bool:
        """Whether a value is surely a tensor that the program made."""
        frame = self.training.levels[level].frame
        return self._is_tensor_thing(self.bindings.resolve(frame, unit), frozenset())

    def _is_tensor_thing(self, thing: Thing, seen: frozenset[Thing]) -> bool:
        if thing in seen:
            return False
        made = self.bindings.assignments(thing)
        return any(self._makes_tensor(one.value, one, seen | {thing}) for one in made)

    def _makes_tensor(
        self, value: cst.BaseExpression, one: Assignment, seen: frozenset[Thing]
    ) -> bool:
        # By where a function lives: what torch itself computes is a tensor, what torch.nn makes is none.
        frame = self.source.frame(one.node)
        if isinstance(value, cst.Tuple) and one.index is not None:
            return self._makes_tensor(value.elements[one.index].value, one, seen)
        if isinstance(value, cst.BinaryOperation):
            return any(self._makes_tensor(side, one, seen) for side in (value.left, value.right))
        if isinstance(value, cst.Call):
            name = self.source.imported(value.func)
            if name:
                return name.startswith("torch.") and not name.startswith(_NO_TENSORS)
            inner = value.func.value if isinstance(value.func, cst.Attribute) else None
            return inner is not None and self._makes_tensor(inner, one, seen)
        if isinstance(value, cst.Subscript | cst.Attribute) and not unit_of(value):
            return self._makes_tensor(value.value, one, seen)
        unit = unit_of(value)
        return bool(unit) and self._is_tensor_thing(self.bindings.resolve(frame, unit), seen)

    def _makes_number(self, one: Assignment) -> bool:
        # Counters of range and enumerate, and arithmetic of numbers; other calls are unknown.
        value = one.value
        name = unit_of(value.func) if isinstance(value, cst.Call) else ""
        if one.repeated and isinstance(one.node, cst.For) and isinstance(value, cst.Call):
            if name in {"range", "trange"} and unit_of(one.node.target) == one.unit:
                return True
            pair = one.node.target
            first = pair.elements[0].value if isinstance(pair, cst.Tuple) else None
            return name == "enumerate" and unit_of(first) == one.unit
        imported = self.source.imported(value.func) if isinstance(value, cst.Call) else ""
        if name in _NUMBERS or imported.startswith("math."):
            return True
        if isinstance(value, cst.Integer | cst.Float):
            return True
        if isinstance(value, cst.BinaryOperation):
            return all(
                isinstance(side, cst.Integer | cst.Float) or self._is_number_unit(one, side)
                for side in (value.left, value.right)
            )
        return False

    def _is_number_unit(self, one: Assignment, side: cst.BaseExpression) -> bool:
        unit = unit_of(side)
        if not unit or unit == one.unit:
            return False
        made = self.bindings.assignments(self.bindings.thing(self.source.frame(one.node), unit))
        return bool(made) and all(self._makes_number(other) for other in made if other is not one)


def thing_frame(thing: Thing) -> Frame:
    """Return the frame whose variable something is."""
    return thing.owner if not isinstance(thing.owner, cst.ClassDef) else None
