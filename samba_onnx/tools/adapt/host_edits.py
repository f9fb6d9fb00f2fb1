"""Where a program looks at weights on the host, or writes them there: copies from and to the RDU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from samba_onnx.tools.adapt.name_units import attribute_name, root_unit, target_units, unit_of, walk
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.roles import Role
from samba_onnx.tools.adapt.slicing import Slice
from samba_onnx.tools.adapt.source import Frame
from samba_onnx.tools.adapt.trained_step import TrainedStep

_HARMLESS = frozenset(
    {
        "train",
        "eval",
        "zero_grad",
        "to",
        "cuda",
        "cpu",
        "modules",
        "children",
        "config",
        "requires_grad_",
    }
)
"""What programs do with a module that asks for no weight."""


@dataclass(frozen=True)
class Moments:
    """When a statement is executed, compared with the trace of the graph."""

    before: bool
    after: bool


class HostEdits:
    """Plans copies of weights between host and RDU."""

    def __init__(self, port: ProgramPort, training: TrainedStep, cut: Slice) -> None:
        self.port = port
        self.source = port.source
        self.training = training
        self.cut = cut
        self._seen: set[tuple[Frame, cst.CSTNode]] = set()

    def plan(self) -> None:
        """Plan all edits."""
        # Every use of the model is looked at: a missing copy would show old weights, and nobody would notice.
        for node in self.source.nodes:
            if isinstance(node, cst.Name | cst.Attribute) and self._is_model(node):
                self._use(node)
            if isinstance(node, cst.Attribute) and node.attr.value == "grad":
                self._gradient(node)

    def _gradient(self, node: cst.Attribute) -> None:
        """Refuse a gradient that is read while the program trains, of whatever it is: the RDU keeps its own."""
        statement = self.source.statement(node)
        # `p.grad = None` reads nothing; and a module's own methods are looked at where they are called.
        is_target = isinstance(self.source.parent(node), cst.AssignTarget)
        is_own = self.source.is_module(self.source.class_of(self.source.frame(node)))
        if is_target or is_own or self.port.roles.of(statement) is not None:
            return
        if self._moments(statement, 0).after:
            self._refuse_gradients(statement)

    def _refuse_gradients(self, statement: cst.BaseStatement) -> None:
        self.port.points.add(
            statement,
            "weights-written",
            "the program writes weights or reads gradients on the host while the RDU trains",
            instead="call samba.session.to_cpu(model) before and samba.session.to_rdu(model) behind it; "
            "gradients are sn_grad of the parameters",
        )

    @cached_property
    def _traced(self) -> set[cst.FunctionDef]:
        """Functions of the program that the RDU computes with the step."""
        found: set[cst.FunctionDef] = set()
        waiting: list[cst.CSTNode] = [*self.cut.moved]
        while waiting:
            for node in walk(waiting.pop()):
                function = self.port.bindings.callee(node) if isinstance(node, cst.Call) else None
                if function is not None and function not in found:
                    found.add(function)
                    waiting.append(function.body)
        return found

    def _is_called_elsewhere(self, function: Frame) -> bool:
        """Whether the host calls a function, too, which the RDU computes in a step."""
        sites = (
            self.port.bindings.call_sites(function) if isinstance(function, cst.FunctionDef) else []
        )
        return any(
            self.source.frame(site) not in self._traced
            and not any(self.source.contains(moved, site) for moved in self.cut.moved)
            for site in sites
        )

    def _is_model(self, node: cst.Name | cst.Attribute) -> bool:
        # Definitions and keywords have the name, and are no use of the object.
        unit = unit_of(node)
        above = self.source.parent(node)
        if not unit or isinstance(above, cst.Param | cst.AssignTarget):
            return False
        # What a module does in its own methods is what others ask of it.
        if self.source.is_module(self.source.class_of(self.source.frame(node))):
            return False
        # The name behind a dot, or a keyword of a call, is no use of the variable.
        if isinstance(above, cst.Attribute) and above.attr is node:
            return False
        if isinstance(above, cst.Arg) and above.keyword is node:
            return False
        known = self.port.bindings.thing(self.source.frame(node), unit)
        if not self.port.bindings.assignments(known) and not self.port.bindings.is_parameter(known):
            return False
        return self.port.bindings.resolve(self.source.frame(node), unit) in self.training.models

    def _use(self, node: cst.Name | cst.Attribute) -> None:
        statement = self.source.statement(node)
        if self.port.edits.is_gone(node) or self.port.roles.of(statement) is not None:
            return
        if statement in self.port.edits.opened:
            return  # the head of a `with`, of which nothing is left
        if self._is_harmless(node, statement):
            return
        moments = self._moments(statement, 0)
        if not moments.after:
            return
        if self.source.frame(node) in self._traced:
            if not self._is_called_elsewhere(self.source.frame(node)):
                return
            # While a graph is traced, the model has no outputs yet, and nothing is copied.
            moments = Moments(before=True, after=True)
        if self._writes(node, statement) or self.training.infers:
            return
        self._copy(node, statement, moments)

    def _is_harmless(self, node: cst.CSTNode, statement: cst.BaseStatement) -> bool:
        # Shapes and modes are the same on host and device.
        above = self.source.parent(node)
        if isinstance(above, cst.Attribute) and above.attr.value in _HARMLESS:
            return True
        # Another name for the module, whose uses are looked at themselves.
        if isinstance(above, cst.Assign | cst.Return | cst.Element):
            return True
        if isinstance(above, cst.Arg):
            call = self.source.parent(above)
            is_own = isinstance(call, cst.Call) and self.port.bindings.callee(call) is not None
            return (
                is_own
                or "numel" in self.source.code(statement)
                or unit_of(getattr(call, "func", None)) == "print"
            )
        code = self.source.code(statement) if isinstance(statement, cst.SimpleStatementLine) else ""
        inside = any(
            self.source.contains(optimizer.call, node) for optimizer in self.port.search.optimizers
        )
        return inside or "numel()" in code

    def _moments(self, statement: cst.BaseStatement, depth: int) -> Moments:
        """Say whether a statement is executed before the trace, after it, or both."""
        # A function is executed when its callers are.
        frame = self.source.frame(statement)
        for place, level in enumerate(self.training.levels):
            if level.frame is frame:
                if place < self.training.home:
                    return Moments(before=False, after=True)
                mark = self.training.entry if place == self.training.home else level.statement
                later = self.source.contains(mark, statement) or self.source.line(
                    statement
                ) > self.source.line(mark)
                return Moments(before=not later, after=later)
        if not isinstance(frame, cst.FunctionDef) or depth > 8:
            return Moments(before=True, after=False)
        sites = [
            self._moments(self.source.statement(call_site), depth + 1)
            for call_site in self.port.bindings.call_sites(frame)
        ]
        return Moments(any(site.before for site in sites), any(site.after for site in sites))

    def _writes(self, node: cst.CSTNode, statement: cst.BaseStatement) -> bool:
        """Send weights to the RDU where the program writes them; refuse what nobody can follow."""
        # Loading is followed by a copy to the device; arithmetic on weights is not.
        above = self.source.parent(node)
        name = above.attr.value if isinstance(above, cst.Attribute) and above.value is node else ""
        unit = unit_of(node)
        if name == "load_state_dict":
            self.port.edits.insert_after(
                statement,
                f"samba.session.to_rdu({unit})",
                "weights-to-device",
                "weights that the program loads are sent to the RDU",
            )
            return True
        outer = self._whole(statement)
        names = self._weight_names(outer)
        changed = [one for one in walk(outer) if self._changes_weights(one, names)]
        if name in {"apply", "parameters", "named_parameters"} and changed:
            self._refuse_gradients(statement)
        return False

    def _weight_names(self, outer: cst.CSTNode) -> set[str]:
        """Return the names of loops that stand for weights of the model: not those of a copy beside it."""
        names: set[str] = set()
        for loop in walk(outer):
            if isinstance(loop, cst.For | cst.CompFor):
                names.update(self._elements(loop.target, loop.iter))
        return names

    def _elements(self, target: cst.BaseExpression, values: cst.BaseExpression) -> list[str]:
        several = isinstance(values, cst.Call) and unit_of(values.func) == "zip"
        if several and isinstance(values, cst.Call) and isinstance(target, cst.Tuple):
            pairs = zip(target.elements, values.args, strict=False)
            return [unit for one, arg in pairs for unit in self._elements(one.value, arg.value)]
        inside = any(
            self._is_model(node)
            for node in walk(values)
            if isinstance(node, cst.Name | cst.Attribute)
        )
        return target_units(target) if inside else []

    def _changes_weights(self, node: cst.CSTNode, names: set[str]) -> bool:
        """Whether a node writes a weight, or reads a gradient, which the host does not have."""
        target: cst.CSTNode | None = None
        if isinstance(node, cst.Attribute) and node.attr.value == "grad":
            target = node.value
        elif isinstance(node, cst.AssignTarget) and attribute_name(node.target) == "data":
            target = node.target
        elif isinstance(node, cst.Call):
            name = attribute_name(node.func)
            if not name.endswith("_") or name.startswith("_") or name == "requires_grad_":
                return False
            # torch.nn.init.normal_(weight) changes its argument, weight.clamp_() its owner.
            is_function = bool(self.source.imported(node.func))
            target = node.args[0].value if is_function and node.args else node.func
        if target is None:
            return False
        root = root_unit(target)
        return root in names or (
            bool(root)
            and self.port.bindings.resolve(self.source.frame(node), root) in self.training.models
        )

    def _copy(
        self, node: cst.Name | cst.Attribute, statement: cst.BaseStatement, moments: Moments
    ) -> None:
        # Once in a function that does not train: nothing changes weights in between.
        outer = self._whole(statement)
        frame = self.source.frame(statement)
        inside = frame in [level.frame for level in self.training.levels]
        key = (frame, outer if inside else self.source.module)
        if key in self._seen:
            return
        self._seen.add(key)
        call = self._call_text(unit_of(node), outer)
        text = (
            f'if getattr({unit_of(node)}, "output_tensors", None):\n    {call}'
            if moments.before
            else call
        )
        what = "weights and buffers are copied to the host, which looks at them"
        place = self.cut.place if self._is_before_step(outer) and self.cut.place else outer
        self.port.edits.insert_before(place, text, "weights-to-host", what)

    def _is_before_step(self, statement: cst.BaseStatement) -> bool:
        """Whether a statement between forward pass and step looks at the weights that the step has not changed yet."""
        # A run makes all of a step at once: what the weights were is copied before it.
        block = list(self.source.block(self.training.backward.statement))
        if statement not in block or self.cut.place not in block:
            return False
        steps = [
            block.index(part.statement)
            for part in self.training.parts
            if part.role is Role.STEP and part.statement in block
        ]
        return block.index(self.cut.place) < block.index(statement) < max(steps, default=-1)

    def _call_text(self, unit: str, outer: cst.BaseStatement) -> str:
        frame = self.source.frame(outer)
        code = self.source.code(outer)
        units = [
            self.port.bindings.unit_in(frame, optimizer.thing)
            for optimizer in self.training.optimizers
        ]
        kept = [one for one in units if one and f"{one}.state_dict" in code]
        return (
            f"samba.session.to_cpu({unit}, [{', '.join(kept)}])"
            if kept
            else f"samba.session.to_cpu({unit})"
        )

    def _whole(self, statement: cst.BaseStatement) -> cst.BaseStatement:
        """Return the outermost loop or ``with`` that a statement is in and that does not train."""
        # One copy before a loop, and not one for each of its batches.
        marks = [level.statement for level in self.training.levels]
        while True:
            above = self.source.around(statement)
            if not isinstance(above, cst.For | cst.While | cst.With):
                return statement
            if any(self.source.contains(above, mark) for mark in marks):
                return statement
            statement = above
