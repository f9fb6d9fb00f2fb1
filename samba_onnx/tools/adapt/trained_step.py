"""What a program trains: its optimizers, the loop, and the place where all of it is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from samba_onnx.tools.adapt.bindings import Bindings, Thing
from samba_onnx.tools.adapt.name_units import (
    argument,
    reads,
    root_unit,
    target_units,
    unit_of,
    walk,
)
from samba_onnx.tools.adapt.roles import Role, StepPart, StepRoles
from samba_onnx.tools.adapt.source import Frame, ProgramFile

_PARAMETERS = frozenset({"parameters", "named_parameters"})
_OPTIMIZERS = "torch.optim."
_NO_OPTIMIZERS = ("torch.optim.lr_scheduler.", "torch.optim.swa_utils.")
_SCALERS = frozenset({"torch.amp.GradScaler", "torch.cuda.amp.GradScaler", "torch.GradScaler"})


@dataclass(frozen=True)
class Optimizer:
    """A place that makes an optimizer."""

    call: cst.Call
    kind: str
    """The class, as ``AdamW``."""
    thing: Thing
    models: tuple[Thing, ...]
    """The modules whose parameters it steps."""
    units: tuple[str, ...]
    """The same modules, by their names where the optimizer is made."""
    anchor: cst.CSTNode
    """The first place that takes parameters for it."""


@dataclass(frozen=True)
class CallLevel:
    """One function on the way from the whole program to its training step."""

    frame: Frame
    statement: cst.BaseStatement
    """What leads down: the call of the next function, or the backward pass itself."""
    call: cst.Call | None = None
    """The call of the level below; None at the lowest."""


@dataclass(frozen=True)
class TrainedStep:
    """A training step and what belongs to it."""

    backward: StepPart
    parts: tuple[StepPart, ...]
    """All statements of the step's functions that play a part in it."""
    optimizers: tuple[Optimizer, ...]
    levels: tuple[CallLevel, ...]
    """From the function with the backward pass to the module."""
    home: int
    """The level at which model, optimizer and loop are all known, and at which a PEF is compiled."""
    entry: cst.BaseStatement
    """The statement of that level with which training begins."""
    models: tuple[Thing, ...] = field(default=())
    infers: bool = False
    """Whether it is the call of a model alone, which nothing differentiates."""

    @property
    def frame(self) -> Frame:
        """The function that has the backward pass."""
        return self.levels[0].frame

    @property
    def level(self) -> CallLevel:
        """The level at which a PEF is compiled."""
        return self.levels[self.home]


class Search:
    """Finds what a program trains."""

    def __init__(self, source: ProgramFile, bindings: Bindings) -> None:
        self.source = source
        self.bindings = bindings
        self.optimizers = self._optimizers()
        names = {optimizer.thing.unit for optimizer in self.optimizers}
        # Arguments and attributes that hold one have other names, often.
        self.roles = StepRoles(source, self._names(names), self._names(self._scalers()))

    def _names(self, units: set[str]) -> frozenset[str]:
        """Return the last names of units, and of all that are given one of them."""
        # One round over calls and one over assignments: longer chains of names end in one of these.
        names = {unit.rpartition(".")[2] for unit in units}
        for function in self.source.functions:
            for call in self.bindings.call_sites(function):
                for name, value in self.bindings.passed(call, function).items():
                    if unit_of(value).rpartition(".")[2] in names:
                        names.add(name)
        for node in self.source.nodes:
            if isinstance(node, cst.Assign) and unit_of(node.value).rpartition(".")[2] in names:
                for target in node.targets:
                    names.update(unit.rpartition(".")[2] for unit in target_units(target.target))
        return frozenset(names - {""})

    def _scalers(self) -> set[str]:
        made = [call for call in self.source.calls if self.source.imported(call.func) in _SCALERS]
        return {self.kept(call).unit for call in made}

    def _optimizers(self) -> tuple[Optimizer, ...]:
        # Schedulers and averaged models live in the same package, and step nothing themselves.
        found = []
        for call in self.source.calls:
            name = self.source.imported(call.func)
            if name.startswith(_OPTIMIZERS) and not name.startswith(_NO_OPTIMIZERS):
                frame = self.source.frame(call)
                owners = self._trained(call)
                units = tuple(dict.fromkeys(root_unit(owner) for owner in owners))
                things = tuple(self.bindings.resolve(frame, unit) for unit in units)
                kind = name.rpartition(".")[2]
                anchor = min(owners, key=self.source.line, default=call)
                found.append(Optimizer(call, kind, self.kept(call), things, units, anchor))
        return tuple(found)

    def kept(self, call: cst.Call) -> Thing:
        """Return the variable that keeps what a call makes."""
        # From the inside out: what stands around the call says where its result goes.
        frame = self.source.frame(call)
        index: int | None = None
        for above in self.source.enclosing(call):
            if isinstance(above, cst.Tuple):
                inside = [self.source.contains(element, call) for element in above.elements]
                index = inside.index(True)
            elif isinstance(above, cst.Call):
                return self._argument(above, call)
            elif isinstance(above, cst.Assign | cst.AnnAssign):
                return self._target(above, index)
            elif isinstance(above, cst.Return) and isinstance(frame, cst.FunctionDef):
                sites = self.bindings.call_sites(frame)
                return self._returned(sites[0], index) if sites else Thing(frame, "")
            elif isinstance(above, cst.BaseStatement):
                break
        return Thing(frame, "")

    def _returned(self, site: cst.Call, index: int | None) -> Thing:
        """Return the variable that keeps what a function returns, or one of several values."""
        for above in self.source.enclosing(site):
            if isinstance(above, cst.Assign | cst.AnnAssign):
                return self._target(above, index)
        return self.kept(site)

    def _target(self, statement: cst.Assign | cst.AnnAssign, index: int | None) -> Thing:
        is_plain = isinstance(statement, cst.Assign)
        target = (
            statement.targets[0].target if isinstance(statement, cst.Assign) else statement.target
        )
        units = target_units(target) if is_plain or unit_of(target) else []
        unit = units[index] if index is not None and index < len(units) else (units or [""])[0]
        return self.bindings.resolve(self.source.frame(statement), unit)

    def _argument(self, call: cst.Call, value: cst.Call) -> Thing:
        """Return the parameter by which a function knows what is made in its call."""
        # An optimizer that is made in a call is first known by the parameter that takes it.
        function = self.bindings.callee(call)
        if function is None:
            return Thing(self.source.frame(call), "")
        for name, one in self.bindings.passed(call, function).items():
            if self.source.contains(one, value):
                return self.bindings.resolve(function, name)
        return Thing(function, "")

    def _trained(self, call: cst.Call) -> list[cst.BaseExpression]:
        """Return the modules whose parameters an optimizer is given, as they are written there."""
        given = argument(call, "params", 0)
        if given is None:
            return []
        return self._owners(self.source.frame(call), given.value, 0)

    def _owners(self, frame: Frame, value: cst.CSTNode, depth: int) -> list[cst.BaseExpression]:
        # Groups, lists, filters and chains all end in somebody's parameters().
        owners: list[cst.BaseExpression] = [
            node.value
            for node in walk(value)
            if isinstance(node, cst.Attribute) and node.attr.value in _PARAMETERS
        ]
        if owners or depth > 3:
            return owners
        # The parameters were collected before: `params = [p for p in model.parameters() ...]`.
        for node in walk(value):
            if isinstance(node, cst.Name):
                for assignment in self.bindings.assignments(self.bindings.thing(frame, node.value)):
                    owners += self._owners(frame, assignment.value, depth + 1)
                for given in self._appended(frame, node.value):
                    owners += self._owners(frame, given, depth + 1)
        return owners

    def _appended(self, frame: Frame, name: str) -> list[cst.BaseExpression]:
        """Return what is appended to a list, as ``(decay if p.ndim > 1 else rest).append(p)``."""
        return [
            call.args[0].value
            for call in self.source.calls
            if isinstance(call.func, cst.Attribute)
            and call.func.attr.value in {"append", "extend"}
            and call.args
            and self.source.frame(call) is frame
            and name in reads(call.func.value)
        ]

    def backwards(self) -> tuple[StepPart, ...]:
        """Return all backward passes of the program, but those in functions that nobody names."""
        # Compound statements have their lines looked at one by one.
        parts = []
        for node in self.source.nodes:
            if isinstance(node, cst.SimpleStatementLine):
                part = self.roles.of(node)
                if part is not None and part.role is Role.BACKWARD and self._is_used(node):
                    parts.append(part)
        return tuple(parts)

    def _is_used(self, statement: cst.BaseStatement) -> bool:
        """Whether anything outside of a function names it, so that it may be called."""
        # A library of several steps, of which the program imports one.
        function = self.source.frame(statement)
        if not isinstance(function, cst.FunctionDef) or function.decorators:
            return True
        return any(
            self._names_function(node, function)
            and not self.source.contains(function, node)
            and not any(isinstance(one, cst.ImportAlias) for one in self.source.enclosing(node))
            for node in self.source.nodes
        ) or (
            f'"{function.name.value}"' in self.source.text
            or f"'{function.name.value}'" in self.source.text
        )

    def _names_function(self, node: cst.CSTNode, function: cst.FunctionDef) -> bool:
        """Whether a name stands for a function; behind a dot, only for a method or one of another file."""
        if not isinstance(node, cst.Name) or node.value != function.name.value:
            return False
        above = self.source.parent(node)
        if isinstance(above, cst.Attribute) and above.attr is node:
            is_method = self.source.class_of(function) is not None
            return is_method or self.source.definition(above) is function
        return node is not function.name

    def training(self, backward: StepPart) -> TrainedStep:
        """Return what belongs to a backward pass.

        Args:
            backward: The part of the step that differentiates.
        """
        levels = self.levels(backward)
        frames = [level.frame for level in levels]
        parts = tuple(
            part
            for node in self.source.nodes
            if isinstance(node, cst.BaseStatement) and self.source.frame(node) in frames
            for part in [self.roles.of(node)]
            if part is not None
        )
        stepped = self._stepped(parts)
        home = self._home(levels, stepped)
        models = tuple(dict.fromkeys(model for one in stepped for model in one.models))
        entry = self._entry(levels[home], stepped)
        return TrainedStep(
            backward=backward,
            parts=parts,
            optimizers=stepped,
            levels=levels,
            home=home,
            entry=entry,
            models=models,
        )

    def _stepped(self, parts: tuple[StepPart, ...]) -> tuple[Optimizer, ...]:
        # A program with a single optimizer has no choice, whatever it is called in the loop.
        units = [
            self.bindings.resolve(self.source.frame(part.statement), root_unit(part.subject))
            for part in parts
            if part.role is Role.STEP and part.subject is not None
        ]
        found = tuple(optimizer for optimizer in self.optimizers if optimizer.thing in units)
        return found or (self.optimizers if len(self.optimizers) == 1 else ())

    def levels(self, backward: StepPart) -> tuple[CallLevel, ...]:
        """Return the functions on the way from a statement to the module.

        Args:
            backward: The statement, as a part of a step.
        """
        # The first call stands for all: a loop that is entered from two places is compiled once.
        levels = [CallLevel(self.source.frame(backward.statement), backward.statement)]
        while len(levels) < 12:
            function = levels[-1].frame
            if not isinstance(function, cst.FunctionDef):
                break
            sites = [
                site
                for site in self.bindings.call_sites(function)
                if self.source.frame(site) not in [level.frame for level in levels]
            ]
            if not sites:
                break
            levels.append(
                CallLevel(self.source.frame(sites[0]), self.source.statement(sites[0]), sites[0])
            )
        return tuple(levels)

    def _home(self, levels: tuple[CallLevel, ...], optimizers: tuple[Optimizer, ...]) -> int:
        """Return the lowest level that keeps the optimizers itself."""
        # The lowest level: the nearer to the loop, the fewer values have to be carried there.
        for place, level in enumerate(levels):
            if optimizers and all(optimizer.thing.owner is level.frame for optimizer in optimizers):
                return place
        owners = {optimizer.thing.owner for optimizer in optimizers}
        own = [
            place
            for place, level in enumerate(levels)
            # Attributes of `self`: the method from which the others are called.
            if isinstance(self.source.class_of(level.frame), cst.ClassDef)
            and self.source.class_of(level.frame) in owners
        ]
        return own[-1] if own else len(levels) - 1

    def _entry(self, level: CallLevel, optimizers: tuple[Optimizer, ...]) -> cst.BaseStatement:
        """Return the outermost loop around the training that does not make its optimizer anew."""
        # A loop over folds makes model and optimizer anew, and each fold traces a graph of its own.
        entry = around = level.statement
        while True:
            above = self.source.around(around)
            if above is None or any(
                self.source.contains(above, optimizer.call) for optimizer in optimizers
            ):
                return entry
            around = above
            if isinstance(above, cst.For | cst.While):
                entry = above
