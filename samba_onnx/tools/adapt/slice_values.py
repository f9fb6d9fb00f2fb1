"""What goes into the graph of a step, and what comes out of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

import libcst as cst

from samba_onnx.tools.adapt.flow import Flow
from samba_onnx.tools.adapt.graph_code import plain_name
from samba_onnx.tools.adapt.name_units import (
    attribute_name,
    read_nodes,
    reads,
    root_unit,
    target_units,
    unit_of,
    walk,
    writes,
)

_RANDOM = frozenset(
    {
        "torch.randn", "torch.rand", "torch.randint", "torch.randperm", "torch.randn_like", "torch.rand_like",
        "torch.normal", "torch.bernoulli", "torch.empty_like",
    }
)  # fmt: skip
"""Functions that draw random numbers."""
_FIELDS = frozenset(
    {"loss", "logits", "last_hidden_state", "pooler_output", "hidden_states", "predictions", "start_logits", "end_logits"}
)  # fmt: skip
"""Attributes that models of transformers return their results by."""


Part = cst.Attribute | cst.Subscript
"""What a result that is no tensor is read by: ``outputs.logits``, ``out["logits"]``."""


@dataclass(frozen=True)
class Input:
    """A value that each step hands to the RDU."""

    name: str
    """Its name there."""
    node: cst.BaseExpression
    """The expression that has it, in the step's function."""
    is_number: bool = False
    """Whether it is a number of Python, and no tensor."""
    is_mapping: bool = False
    """Whether it is a dictionary of tensors, which the model takes by ``**``."""
    is_sequence: bool = False
    """Whether it is a tuple or list of tensors, as the state of an LSTM."""

    @property
    def argument(self) -> str:
        """What ``forward`` calls it among its arguments."""
        return f"**{self.name}" if self.is_mapping else self.name


def in_order(inputs: Iterable[Input]) -> list[Input]:
    """Return inputs in the order of arguments: what stands for any number of them comes last."""
    return sorted(inputs, key=lambda one: (one.is_mapping, one.is_sequence))


@dataclass(frozen=True)
class Output:
    """A value that the program looks at after a step."""

    name: str
    """The variable that gets it."""
    code: str
    """Where the module has it: a name, or ``outputs.logits``."""
    is_sequence: bool = False
    """Whether it is several tensors."""


class SliceValues:
    """Finds the values that pass between the host and the graph of a step."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.source = flow.source
        self.bindings = flow.bindings
        self.training = flow.training

    def outputs(
        self,
        computed: list[str],
        expression: cst.BaseExpression,
        loss: str,
        moved: tuple[cst.BaseStatement, ...],
    ) -> tuple[tuple[Output, ...], tuple[tuple[Part, str], ...]]:
        """Return what comes out of the graph; of an object, the parts that somebody reads."""
        gone = {*moved, *(part.statement for part in self.training.parts)}
        outputs: dict[str, Output] = {}
        renamed: list[tuple[Part, str]] = []
        for unit in computed:
            uses = self._parts(unit, gone)
            if not uses:
                outputs[unit] = Output(unit, plain_name(unit))
            for node in uses:
                code = self.source.code(node)
                name = loss if code == self.source.code(expression) else self._part_name(node, unit)
                renamed.append((node, name))
                if name != loss:
                    outputs[name] = Output(name, code)
        return tuple(outputs.values()), tuple(renamed)

    def _part_name(self, node: Part, unit: str) -> str:
        """Return the variable that a part becomes: ``outputs.logits`` is logits, ``out["logits"]`` out_logits."""
        if isinstance(node, cst.Attribute):
            return node.attr.value
        name = f"{plain_name(unit)}_{_key(node)}"
        # One that the program has already would be overwritten.
        return f"{name}_output" if name in self._names else name

    def _parts(self, unit: str, gone: set[cst.BaseStatement]) -> list[Part]:
        """Return the uses of a unit that is read by parts only which no tensor has."""
        # One use as a whole keeps all: the object would then have to leave the graph.
        found: list[Part] = []
        for node in self.source.nodes:
            if unit_of(node) != unit or self.source.frame(node) is not self.training.frame:
                continue
            above = self.source.parent(node)
            if isinstance(above, cst.AssignTarget | cst.Element) or any(
                one in gone for one in self.source.enclosing(node)
            ):
                continue
            if not _is_part(above):
                return []
            found.append(above)
        return found

    def inputs(
        self,
        moved: tuple[cst.BaseStatement, ...],
        loss: cst.BaseExpression,
        models: tuple[str, ...],
    ) -> tuple[Input, ...]:
        """Return what moved statements take from the host, each once."""
        # In the order of the first use, which is the order of forward's arguments.
        computed = {*models}
        found: dict[str, Input] = {}
        mappings = self._mappings(moved)
        for node in (*moved, loss):
            for one in self._taken(node, computed | mappings):
                code = self.source.code(one)
                number = bool(unit_of(one)) and self.flow.is_number(unit_of(one))
                name = self._input_name(one, {other.name for other in found.values()})
                # A call is another value each time, of the same text: it may draw random numbers.
                key = f"{code} {len(found)}" if isinstance(one, cst.Call) else code
                found.setdefault(key, Input(name, one, number))
            for one in read_nodes(node):
                unit = unit_of(one)
                if unit in mappings and unit not in computed:
                    found.setdefault(unit, Input(plain_name(unit), one, is_mapping=True))
            computed.update(writes(node))
        return tuple(found.values())

    def _mappings(self, moved: tuple[cst.BaseStatement, ...]) -> set[str]:
        """Return the units that the model is given by ``**``."""
        starred = (node for one in moved for node in walk(one) if isinstance(node, cst.Arg))
        return {
            unit_of(node.value) for node in starred if node.star == "**" and unit_of(node.value)
        }

    def _taken(self, node: cst.CSTNode, computed: set[str]) -> Iterator[cst.BaseExpression]:
        """Yield the expressions of a node that are values of the host."""
        # The largest expression that is the host's own: what it computes need not be traced.
        if isinstance(node, cst.IndentedBlock):
            for one in node.body:
                yield from self._taken(one, computed)
                computed = computed | set(writes(one))
            return
        if isinstance(node, cst.BaseSimpleComp):
            # Elements of what a comprehension goes through are its own.
            yield from self._taken(node.for_in.iter, computed)
            yield from self._taken(node.elt, computed | set(target_units(node.for_in.target)))
            return
        if isinstance(
            node, cst.AssignTarget | cst.Annotation | cst.CompFor | cst.Lambda | cst.AsName
        ):
            return
        if isinstance(node, cst.AnnAssign | cst.NamedExpr):
            if node.value is not None:
                yield from self._taken(node.value, computed)
            return
        if isinstance(node, cst.For):
            for part in (node.iter, node.body):
                yield from self._taken(part, computed)
            return
        if isinstance(node, cst.BaseExpression) and self._is_host_value(node, computed):
            yield node
            return
        if isinstance(node, cst.Attribute | cst.Arg):
            yield from self._taken(node.value, computed)
        else:
            for child in node.children:
                yield from self._taken(child, computed)

    def _is_host_value(self, node: cst.BaseExpression, computed: set[str]) -> bool:
        units = reads(node)
        if computed & set(units):
            return False
        if not units:
            return False
        unit = unit_of(node)
        if unit:
            if self.is_global(unit):
                return False
            return self.flow.origin(unit).varies or self.flow.is_tensor(unit)
        if isinstance(node, cst.Subscript):
            return any(self.flow.origin(one).varies or self.flow.is_tensor(one) for one in units)
        if not isinstance(node, cst.Call):
            return False
        # Random numbers come from the host's generator, in the order in which the program draws; so
        # may those of the program's own functions.
        if self.source.imported(node.func) in _RANDOM:
            return True
        function = self.bindings.callee(node)
        is_plain = function is not None and self.source.class_of(function) is None
        return (
            is_plain
            and not self.calls_model(node)
            and any(self.flow.origin(read).varies for read in reads(*node.args))
        )

    def _input_name(self, node: cst.BaseExpression, taken: set[str]) -> str:
        # A key that is a word is what the author calls it: batch['label'] becomes label.
        unit = unit_of(node)
        if unit:
            return plain_name(unit)
        if isinstance(node, cst.Subscript):
            key = self.source.code(node.slice[0]).strip("'\"")
            root = plain_name(root_unit(node))
            name = key if key.isidentifier() and self.source.code(node.slice[0]) != key else root
            name = f"{root}_{key}" if key.isdigit() else name
        elif isinstance(node, cst.Call) and self.source.imported(node.func) not in _RANDOM:
            name = f"{attribute_name(node.func) or unit_of(node.func)}_result"
        else:
            name = "noise"
        count, free = 1, name
        while free in taken or free in self._names:
            count += 1
            free = f"{name}_{count}"
        return free

    @cached_property
    def _names(self) -> set[str]:
        """All names of the program: an input of its own must not hide one."""
        return {node.value for node in self.source.nodes if isinstance(node, cst.Name)}

    def is_global(self, unit: str) -> bool:
        """Whether a unit is a name of the module that forward can read as it is: imports, functions, numbers."""
        # Functions, classes, modules and plain constants read the same from anywhere in the file.
        thing = self.bindings.thing(self.training.frame, unit)
        if not thing.is_global:
            return False
        made = self.bindings.assignments(thing)
        if not made:
            return True
        simple = all(isinstance(one.value, cst.BaseNumber | cst.BaseString) for one in made)
        return simple and not self.flow.origin(unit).varies

    def calls_model(self, part: cst.CSTNode) -> bool:
        """Whether a function of the program is called that reads a model which nobody gives it."""
        # A function that reads a global model is as much a part of the step as the model's own call.
        for node in walk(part):
            function = self.bindings.callee(node) if isinstance(node, cst.Call) else None
            if function is None or function.name.value == "__init__":
                continue
            if self.source.is_module(self.source.class_of(function)):
                continue
            own = (unit for unit in reads(function.body) if unit)
            for unit in own:
                thing = self.bindings.resolve(function, unit)
                if thing in self.training.models and not self.bindings.is_parameter(
                    self.bindings.thing(function, unit)
                ):
                    return True
        return False


def _key(node: cst.Subscript) -> str:
    """Return the word by which an item is taken out of a dictionary; empty for anything else."""
    index = node.slice[0].slice if len(node.slice) == 1 else None
    value = index.value if isinstance(index, cst.Index) else None
    key = value.evaluated_value if isinstance(value, cst.SimpleString) else ""
    return key if isinstance(key, str) and key.isidentifier() else ""


def _is_part(node: cst.CSTNode | None) -> TypeGuard[Part]:
    """Whether an expression takes out of a value what no tensor has: a field of a result, an item by a word."""
    if isinstance(node, cst.Attribute):
        return node.attr.value in _FIELDS
    return isinstance(node, cst.Subscript) and bool(_key(node))
