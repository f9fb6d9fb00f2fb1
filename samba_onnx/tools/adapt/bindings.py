"""Which names are one object: through assignments, arguments, attributes of ``self`` and returned values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from samba_onnx.tools.adapt.name_units import (
    SELF,
    argument,
    attribute_name,
    target_units,
    unit_of,
    walk,
)
from samba_onnx.tools.adapt.source import Frame, ProgramFile

_WRAPPERS = frozenset(
    {
        "torch.compile",
        "torch.jit.script",
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
    }
)
"""Functions that return the module that they are given, in another coat."""
_SAME = frozenset({"to", "cuda", "cpu", "train", "eval", "float", "double", "half", "bfloat16"})
"""Methods of modules that return the module itself."""
_PREPARED = frozenset({"prepare", "prepare_model", "prepare_data_loader", "unwrap_model"})
"""Methods of accelerate's that return what they are given."""
_DEEPEST = 16
"""Names that are followed from one to the next; programs that need more are their own puzzle."""


@dataclass(frozen=True)
class Assignment:
    """One place that gives a unit its value."""

    unit: str
    value: cst.BaseExpression
    index: int | None
    """Which of several values it is, in ``a, b = ...``; None for all of it."""
    node: cst.CSTNode
    repeated: bool = False
    """Whether it is the target of a loop, whose value is an element."""


@dataclass(frozen=True)
class Thing:
    """An object of the program, by the place that makes it."""

    owner: cst.FunctionDef | cst.ClassDef | cst.Module | None
    """The function whose local name it is, the class whose attribute; the module for those of a file of
    its own, and None for the one that is executed."""
    unit: str

    @property
    def is_global(self) -> bool:
        """Whether it is a variable of a module."""
        return not isinstance(self.owner, cst.FunctionDef | cst.ClassDef)


class Bindings:
    """The names of a program."""

    def __init__(self, source: ProgramFile) -> None:
        self.source = source
        self._assignments: dict[Thing, list[Assignment]] = defaultdict(list)
        self._globals: dict[Frame, set[str]] = defaultdict(set)
        for node in source.nodes:
            if isinstance(node, cst.Global):
                self._globals[source.frame(node)].update(item.name.value for item in node.names)
        for node in source.nodes:
            frame = source.frame(node)
            for assignment in _assignments(node):
                self._assignments[self._target(frame, assignment.unit)].append(assignment)

    def _target(self, frame: Frame, unit: str) -> Thing:
        # Attributes belong to the class: objects of one class are taken to be one object.
        if unit.startswith(f"{SELF}."):
            return Thing(self._class(frame), unit)
        if unit in self._globals.get(frame, ()):
            return Thing(self._level(frame), unit)
        return Thing(frame, unit)

    def _level(self, frame: Frame) -> cst.Module | None:
        """Return what stands for the level of the file that a frame is in."""
        level = self.source.level(self.source.file(frame))
        return level if isinstance(level, cst.Module) else None

    def _class(self, frame: Frame) -> cst.ClassDef | None:
        """Return the class whose ``self`` a function sees, from within functions of methods, too."""
        # A closure inside of a method sees the method's self.
        while isinstance(frame, cst.FunctionDef):
            owner = self.source.class_of(frame)
            if owner is not None:
                return owner
            frame = self.source.frame(frame)
        return None

    def thing(self, frame: Frame, unit: str) -> Thing:
        """Return the variable that a unit is in a frame, without following what it was given."""
        # From the inside out, as Python looks for names.
        if unit.startswith(f"{SELF}."):
            return Thing(self._class(frame), unit)
        while isinstance(frame, cst.FunctionDef):
            if unit in parameters(frame) or self._assignments.get(self._target(frame, unit)):
                return self._target(frame, unit)
            frame = self.source.frame(frame)
        # What a file imports of another file of the program is the variable there.
        link = self.source.linked(frame, unit)
        if link is None:
            return Thing(frame, unit)
        level = self.source.level(link[0])
        return Thing(level if isinstance(level, cst.Module) else None, link[1])

    def assignments(self, thing: Thing) -> list[Assignment]:
        """Return all places that give a variable a value."""
        return self._assignments.get(thing, [])

    def things(self) -> list[Thing]:
        """Return all variables that are given a value somewhere."""
        return list(self._assignments)

    def is_parameter(self, thing: Thing) -> bool:
        """Whether a variable is an argument of its function."""
        return isinstance(thing.owner, cst.FunctionDef) and thing.unit in parameters(thing.owner)

    @cached_property
    def _by_name(self) -> dict[str, list[cst.FunctionDef]]:
        found: dict[str, list[cst.FunctionDef]] = defaultdict(list)
        for function in self.source.functions:
            found[function.name.value].append(function)
        return found

    def callee(self, call: cst.Call) -> cst.FunctionDef | None:
        """Return the function of the program that a call calls; None for others."""
        # Classes are called for their constructors: what is passed becomes attributes there.
        found = self.source.definition(call.func)
        if isinstance(found, cst.ClassDef):
            return self.method(found, "__init__")
        if found is not None or isinstance(call.func, cst.Name):
            return found
        if not isinstance(call.func, cst.Attribute) or self.source.imported(call.func):
            return None
        methods = [one for one in self._by_name[call.func.attr.value] if self.source.class_of(one)]
        own = self._class(self.source.frame(call))
        if unit_of(call.func.value) == SELF:
            return next((method for method in methods if self.source.class_of(method) is own), None)
        # An object whose class nobody followed: the name tells if only one class has it, and if
        # no module of torch could.
        taken = call.func.attr.value in {"forward", "to", "train", "eval", "step", "parameters"}
        if taken or len(methods) != 1:
            return self._method_of_object(call)
        return methods[0]

    def _method_of_object(self, call: cst.Call) -> cst.FunctionDef | None:
        assert isinstance(call.func, cst.Attribute)
        unit = unit_of(call.func.value)
        # Not followed further: that would ask for the calls of functions, which are being found.
        made = self.maker(self.thing(self.source.frame(call), unit)) if unit else None
        owner = self.source.definition(made.func) if made is not None else None
        if not isinstance(owner, cst.ClassDef):
            return None
        return self.method(owner, call.func.attr.value)

    def method(self, owner: cst.ClassDef, name: str) -> cst.FunctionDef | None:
        """Return a method that a class states itself."""
        found = self._by_name[name]
        return next((one for one in found if self.source.class_of(one) is owner), None)

    @cached_property
    def _sites(self) -> dict[cst.FunctionDef, list[cst.Call]]:
        # Once for the file: every question about an argument asks for the calls of its function.
        found: dict[cst.FunctionDef, list[cst.Call]] = defaultdict(list)
        for call in self.source.calls:
            called = self.callee(call)
            if called is not None:
                found[called].append(call)
        return found

    def call_sites(self, function: cst.FunctionDef) -> list[cst.Call]:
        """Return the calls of a function in the program, in the order of the text."""
        return self._sites.get(function, [])

    def passed(self, call: cst.Call, function: cst.FunctionDef) -> dict[str, cst.BaseExpression]:
        """Return what a call gives each parameter; defaults included, ``self`` by its receiver."""
        # Defaults first, so that what the call states replaces them.
        names = list(parameters(function))
        values: dict[str, cst.BaseExpression] = {
            one.name.value: one.default
            for one in (*function.params.params, *function.params.kwonly_params)
            if one.default is not None
        }
        if names and names[0] == SELF:
            if isinstance(call.func, cst.Attribute):
                values[SELF] = call.func.value
            names = names[1:]
        for position, name in enumerate(names):
            given = argument(call, name, position)
            if given is not None:
                values[name] = given.value
        return values

    def resolve(self, frame: Frame, unit: str, seen: frozenset[Thing] = frozenset()) -> Thing:
        """Return the variable in which the object of a unit was first kept.

        Args:
            frame: Where the unit is read.
            unit: The unit.
            seen: Variables that were followed already.
        """
        thing = self.thing(frame, unit)
        if thing in seen or len(seen) > _DEEPEST:
            return thing
        seen = seen | {thing}
        for assignment in self.assignments(thing):
            if (
                assignment.repeated
                or unit_of(assignment.value) == "None"
                or self._is_same(assignment)
            ):
                continue
            # The first value counts: later ones are the same object in another coat, mostly.
            further = self._follow(assignment, seen)
            return thing if further is None else further
        if self.is_parameter(thing) and isinstance(thing.owner, cst.FunctionDef):
            for call in self.call_sites(thing.owner):
                value = self.passed(call, thing.owner).get(unit)
                given = unit_of(self.bare(value)) if value is not None else ""
                if given:
                    return self.resolve(self.source.frame(call), given, seen)
        return thing

    def _is_same(self, one: Assignment) -> bool:
        """Whether an assignment gives a variable what it has, as ``model = model.to(device)``."""
        return unit_of(self._chosen(one)) == one.unit

    def _chosen(self, one: Assignment) -> cst.BaseExpression:
        """Return the value that an assignment gives, of several the one at its place, where the text says it."""
        value = self.bare(one.value)
        if one.index is None:
            return value
        if isinstance(value, cst.Tuple) and one.index < len(value.elements):
            return self.bare(value.elements[one.index].value)
        # accelerator.prepare(model, optimizer) returns what it is given.
        if isinstance(value, cst.Call) and attribute_name(value.func) == "prepare":
            plain = [arg for arg in value.args if not arg.star]
            return self.bare(plain[one.index].value) if one.index < len(plain) else value
        return value

    def _follow(self, one: Assignment, seen: frozenset[Thing]) -> Thing | None:
        """Return the variable that an assignment hands on; None if it makes something new."""
        frame = self.source.frame(one.node)
        value = self._chosen(one)
        if (
            one.index is not None
            and value is self.bare(one.value)
            and not isinstance(value, cst.Call)
        ):
            return None
        if unit_of(value):
            return self.resolve(frame, unit_of(value), seen)
        called = self.callee(value) if isinstance(value, cst.Call) else None
        if called is None or called.name.value == "__init__":
            return None
        return self._returned(called, one.index, seen)

    def _returned(
        self, function: cst.FunctionDef, index: int | None, seen: frozenset[Thing]
    ) -> Thing | None:
        # The first return that names a variable: functions that return another object in each branch are rare.
        for node in walk(function.body):
            if isinstance(node, cst.Return) and node.value is not None:
                value = self.bare(node.value)
                if index is not None and isinstance(value, cst.Tuple):
                    value = self.bare(value.elements[index].value)
                if unit_of(value):
                    return self.resolve(function, unit_of(value), seen)
        return None

    def bare(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """Return a module's expression without what only moves or wraps it, as ``.to(device)``."""
        # Wrappers may be nested in any order, as compile(DDP(model.to(device))).
        while isinstance(value, cst.Call):
            if self.source.imported(value.func) in _WRAPPERS and value.args:
                value = value.args[0].value
            elif attribute_name(value.func) in _SAME and isinstance(value.func, cst.Attribute):
                value = value.func.value
            elif attribute_name(value.func) in _PREPARED and len(value.args) == 1:
                value = value.args[0].value
            else:
                break
        return value

    def maker(self, thing: Thing) -> cst.Call | None:
        """Return the call that makes what a variable holds first; None if no call does."""
        # In another coat, the first value is still what was made.
        for assignment in self.assignments(thing):
            value = self.bare(assignment.value)
            if isinstance(value, cst.Call) and not assignment.repeated:
                return value
        return None

    def unit_in(self, frame: Frame, thing: Thing) -> str:
        """Return the unit by which a frame knows an object; an empty text if it does not.

        Args:
            frame: The function; None for the module.
            thing: The object.
        """
        # Own names win over attributes and those over globals, as a reader would choose.
        for unit in self._visible(frame):
            if self.resolve(frame, unit) == thing:
                return unit
        return ""

    def _visible(self, frame: Frame) -> Iterator[str]:
        """Yield the units that a frame can read: its own first, then those of its class, then the module's."""
        if isinstance(frame, cst.FunctionDef):
            yield from parameters(frame)
            yield from (
                assignment.unit for assignment in self._assignments if assignment.owner is frame
            )
            yield from (
                assignment.unit
                for assignment in list(self._assignments)
                if assignment.owner is self._class(frame) and assignment.owner
            )
            yield from self._visible(self.source.frame(frame))
        else:
            yield from (
                assignment.unit
                for assignment in list(self._assignments)
                if assignment.owner is frame
            )
            yield from self.source.file(frame).imports


def parameters(function: cst.FunctionDef) -> dict[str, None]:
    """Return the names of a function's parameters, in their order."""
    # Variadic ones are left out: nobody can tell what is in them.
    stated = function.params
    several = (*stated.posonly_params, *stated.params, *stated.kwonly_params)
    return {one.name.value: None for one in several}


def _assignments(node: cst.CSTNode) -> Iterator[Assignment]:
    """Yield what one node gives values to."""
    # Everything that can bind a name, as far as training programs use it.
    if isinstance(node, cst.Assign):
        for target in node.targets:
            yield from _targets(target.target, node.value, node)
    elif isinstance(node, cst.AnnAssign | cst.NamedExpr | cst.AugAssign):
        # `x: int` alone gives no value.
        yield from () if node.value is None else _targets(node.target, node.value, node)
    elif isinstance(node, cst.For | cst.CompFor):
        for unit in target_units(node.target):
            yield Assignment(unit, node.iter, None, node, repeated=True)
    elif isinstance(node, cst.WithItem) and node.asname is not None:
        for unit in (
            target_units(node.asname.name) if isinstance(node.asname.name, cst.Name) else ()
        ):
            yield Assignment(unit, node.item, None, node)


def _targets(
    target: cst.BaseExpression, value: cst.BaseExpression, node: cst.CSTNode
) -> Iterator[Assignment]:
    # Nested targets as `(a, b), c` have one index for all of the inner ones, which is enough to see what varies.
    if isinstance(target, cst.Tuple | cst.List):
        for index, element in enumerate(target.elements):
            inner = element.value
            known = value.elements if isinstance(value, cst.Tuple) else ()
            if isinstance(inner, cst.Tuple | cst.List) and len(known) == len(target.elements):
                yield from _targets(inner, known[index].value, node)
            else:
                for unit in _inner_units(inner):
                    yield Assignment(unit, value, index, node)
    elif unit_of(target):
        yield Assignment(unit_of(target), value, None, node)


def _inner_units(target: cst.BaseExpression) -> list[str]:
    """Return the units of a nested target; those of parts, as ``x[0]``, are no new values."""
    if unit_of(target):
        return [unit_of(target)]
    elements = target.elements if isinstance(target, cst.Tuple | cst.List) else ()
    return [unit for element in elements for unit in _inner_units(element.value)]
