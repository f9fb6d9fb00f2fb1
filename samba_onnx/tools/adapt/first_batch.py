"""The statements that make a batch, from the loop's own source of data up to the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import libcst as cst

from samba_onnx.tools.adapt.bindings import parameters
from samba_onnx.tools.adapt.graph_code import plain_name, statements_text, substituted
from samba_onnx.tools.adapt.name_units import (
    attribute_name,
    needs_before,
    reads,
    root_unit,
    target_units,
    unit_of,
    walk,
    writes,
)
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.slice_values import Input
from samba_onnx.tools.adapt.source import Frame
from samba_onnx.tools.adapt.trained_step import TrainedStep

_SHOWN = frozenset(
    {"tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "tqdm.trange", "rich.progress.track"}
)


@dataclass
class FirstBatch:
    """How the first batch is made."""

    lines: list[str] = field(default_factory=list)
    """Statements, in their order."""
    copies: bool = False
    """Whether they copy an object that remembers where it is in its data."""
    needed: dict[str, str] = field(default_factory=dict)
    """What they take from the home level: an expression there, by its name in them."""


class FirstBatches:
    """Collects the statements that make a batch."""

    def __init__(
        self, port: ProgramPort, training: TrainedStep, moved: tuple[cst.BaseStatement, ...]
    ) -> None:
        """Take what is known of a program.

        Args:
            port: The program.
            training: Its step.
            moved: The statements that the RDU computes, which give no input of their own step.
        """
        self.port = port
        self.source = port.source
        self.bindings = port.bindings
        self.training = training
        self._moved = moved
        self._home = self.source.file(training.entry)

    def batch(self, inputs: tuple[Input, ...]) -> FirstBatch:
        """Return how the first batch is made.

        Args:
            inputs: What a batch consists of, in the step's function.
        """
        # Upwards, one function after the other, as the batch came down.
        batch = FirstBatch()
        parts = reads(*(one.node for one in inputs))
        frame = self.training.frame
        self._borrow(frame, parts)
        needed = {unit: None for unit in parts if self._is_variable(frame, unit)}
        for place in range(self.training.home + 1):
            needed = self._level(place, needed, batch)
        # What the lines write is a name of their function: it is handed in where they read it before.
        lines = cst.parse_module("\n".join(batch.lines))
        own = [unit for unit in writes(lines) if needs_before(lines.body, unit)]
        batch.needed = {
            plain_name(unit): unit
            for unit in needed
            if not self._is_known(unit) or plain_name(unit) in own
        }
        return batch

    def _borrow(self, frame: Frame, units: Iterable[str]) -> None:
        """Let the file where training begins know what lines from another file read."""
        for unit in units:
            if "." not in unit and self.bindings.thing(frame, unit).is_global:
                self.port.borrowed(unit, frame, self._home)

    def _is_known(self, unit: str) -> bool:
        """Whether a function of the module can read a unit of the home level as it is."""
        # A name of the module is the same in a function beside it.
        thing = self.bindings.thing(self.training.level.frame, unit)
        return thing.is_global and "." not in unit

    def _level(self, place: int, needed: dict[str, None], batch: FirstBatch) -> dict[str, None]:
        """Collect what one function contributes; return what the level above must have."""
        level = self.training.levels[place]
        at_home = place == self.training.home
        for above in self.source.enclosing(level.call) if level.call is not None else ():
            # `[step(batch) for batch in loader]` is a loop as well.
            if isinstance(above, cst.ListComp | cst.GeneratorExp | cst.SetComp):
                needed = self._head(above.for_in, needed, batch)
            elif isinstance(above, cst.BaseStatement):
                break
        needed = self._statement(level.statement, needed, batch, at_home)
        if at_home:
            return needed
        return self._translated(place, needed, batch)

    def _statement(
        self,
        statement: cst.BaseStatement,
        needed: dict[str, None],
        batch: FirstBatch,
        at_home: bool,
    ) -> dict[str, None]:
        """Go backwards from a statement to where its function, or its training, begins."""
        # Statements first, then the head of the loop around them, and so on outwards.
        current = statement
        while not (at_home and current is self.training.entry):
            needed = self._block(current, needed, batch)
            above = self.source.around(current)
            if above is None:
                break
            if isinstance(above, cst.For):
                needed = self._head(above, needed, batch)
            current = above
        return needed

    def _block(
        self, current: cst.BaseStatement, needed: dict[str, None], batch: FirstBatch
    ) -> dict[str, None]:
        # Backwards: a later statement may need what an earlier one makes.
        for one in reversed(self.source.preceding(current)):
            if self.port.roles.of(one) is not None or isinstance(
                one, cst.FunctionDef | cst.ClassDef
            ):
                continue
            if one in self.port.edits.instead or one in self._moved:
                continue  # as `x = x.to(device)`, of which nothing is left
            changed = writes(one)
            if any(unit in needed for unit in changed):
                needed = self._take(one, changed, needed, batch)
        return needed

    def _take(
        self,
        one: cst.BaseStatement,
        changed: dict[str, None],
        needed: dict[str, None],
        batch: FirstBatch,
    ) -> dict[str, None]:
        # Its comment belongs to the loop, where the statement still stands.
        codes = {unit: plain_name(unit) for unit in (*changed, *reads(one)) if "." in unit}
        rewritten = self.port.rewritten(one)
        if not rewritten:
            return needed  # `if use_cuda: x = x.cuda()` gives x nothing new
        if hasattr(rewritten[0], "leading_lines"):
            rewritten[0] = rewritten[0].with_changes(leading_lines=[])
        codes |= self._copies(one, batch)
        batch.lines.insert(0, statements_text(substituted(part, codes) for part in rewritten))
        # What a statement only changes in part, or might not write, is needed before it, too.
        rest = {unit: None for unit in needed if unit not in changed or isinstance(one, cst.If)}
        self._borrow(self.source.frame(one), reads(*rewritten))
        return rest | {unit: None for unit in reads(*rewritten) if self._is_value(one, unit)}

    def _copies(self, one: cst.BaseStatement, batch: FirstBatch) -> dict[str, str]:
        """Return copies for objects that know where they are in their data: the loop begins with theirs."""
        codes = {}
        for call in (node for node in walk(one) if isinstance(node, cst.Call)):
            if unit_of(call.func) == "next":
                self.port.points.add(
                    one,
                    "iterator",
                    "the first batch, whose shapes are compiled, would be taken out of this iterator",
                    instead="loop over what the iterator was made of",
                )
            function = self.bindings.callee(call)
            owner = call.func.value if isinstance(call.func, cst.Attribute) else None
            if function is None or owner is None or not unit_of(owner):
                continue
            if any(unit.startswith("self.") for unit in writes(function.body)):
                code = f"copy.deepcopy({plain_name(unit_of(owner))})"
                codes[self.source.code(call.func)] = f"{code}.{attribute_name(call.func)}"
                batch.copies = True
        return codes

    def _is_value(self, node: cst.CSTNode, unit: str) -> bool:
        """Whether a unit is something that the program computes, rather than an import or function."""
        return self._is_variable(self.source.frame(node), unit)

    def _is_variable(self, frame: Frame, unit: str) -> bool:
        if "." in unit:
            return True  # an attribute or a method: both need the object
        thing = self.bindings.thing(frame, unit)
        return bool(self.bindings.assignments(thing)) or self.bindings.is_parameter(thing)

    def _head(
        self, loop: cst.For | cst.CompFor, needed: dict[str, None], batch: FirstBatch
    ) -> dict[str, None]:
        """Write the first element of what a loop goes through."""
        # next(iter(...)) begins anew: loaders and ranges can be gone through as often as one likes.
        bound = target_units(loop.target)
        if not any(unit in needed for unit in bound):
            return needed
        target, values = self._unwrapped(loop, needed)
        codes = {unit: plain_name(unit) for unit in (*bound, *reads(values)) if "." in unit}
        left = self.source.module.code_for_node(substituted(target, codes))
        right = self.source.module.code_for_node(substituted(values, codes))
        batch.lines.insert(0, f"{left.strip()} = next(iter({right.strip()}))")
        self._refuse_iterators(loop, values)
        self._borrow(self.source.frame(loop), reads(values))
        rest = {unit: None for unit in needed if unit not in bound}
        return rest | {unit: None for unit in reads(values) if self._is_value(loop, unit)}

    def _unwrapped(
        self, loop: cst.For | cst.CompFor, needed: dict[str, None]
    ) -> tuple[cst.BaseExpression, cst.BaseExpression]:
        """Return target and values of a loop without counting and progress bars."""
        # Counting and progress bars add nothing to a batch, and bars write to the terminal.
        target: cst.BaseExpression = loop.target
        values = loop.iter
        while isinstance(values, cst.Call) and values.args:
            name = unit_of(values.func)
            if self.source.imported(values.func) in _SHOWN or name == "tqdm":
                values = values.args[0].value
            elif (
                name == "enumerate" and isinstance(target, cst.Tuple) and len(target.elements) == 2
            ):
                if any(unit in needed for unit in target_units(target.elements[0].value)):
                    break
                target = target.elements[1].value
                values = values.args[0].value
            else:
                break
        if isinstance(target, cst.Tuple):
            target = target.with_changes(lpar=[], rpar=[])
        return target, values

    def _refuse_iterators(self, loop: cst.For | cst.CompFor, values: cst.BaseExpression) -> None:
        """Refuse what can be gone through only once: its first batch would be lost."""
        unit = unit_of(values)
        thing = self.bindings.resolve(self.source.frame(loop), unit) if unit else None
        maker = self.bindings.maker(thing) if thing is not None else None
        if maker is not None and unit_of(maker.func) == "iter":
            self.port.points.add(
                loop,
                "iterator",
                "the first batch, whose shapes are compiled, would be taken out of this iterator",
                instead="loop over what the iterator was made of",
            )

    def _translated(
        self, place: int, needed: dict[str, None], batch: FirstBatch
    ) -> dict[str, None]:
        """Return the units of the calling function that give what a function needs."""
        # Parameters are followed into the call; all other names mean the same in both functions.
        frame = self.training.levels[place].frame
        above = self.training.levels[place + 1]
        if above.call is None or not isinstance(frame, cst.FunctionDef):
            return needed
        passed = self.bindings.passed(above.call, frame)
        result: dict[str, None] = {}
        for unit in needed:
            root = unit.partition(".")[0]
            if root not in parameters(frame):
                result[unit] = None
                continue
            value = passed.get(root)
            if value is None:
                continue
            result |= self._argument(unit, value, above.call, batch)
        return result

    def _argument(
        self, unit: str, value: cst.BaseExpression, call: cst.Call, batch: FirstBatch
    ) -> dict[str, None]:
        # Attributes of an object are read from it where the object has a name.
        if "." in unit:
            owner = root_unit(value)
            if owner == "self":
                return {unit: None}
            batch.lines.insert(0, f"{plain_name(unit)} = {owner}.{unit.partition('.')[2]}")
            return {owner: None}
        code = self.source.code(value)
        if code != plain_name(unit):
            codes = {read: plain_name(read) for read in reads(value) if "." in read}
            text = self.source.module.code_for_node(substituted(value, codes)).strip()
            if text != plain_name(unit):
                batch.lines.insert(0, f"{plain_name(unit)} = {text}")
        self._borrow(self.source.frame(call), reads(value))
        return {read: None for read in reads(value) if self._is_value(call, read)}
