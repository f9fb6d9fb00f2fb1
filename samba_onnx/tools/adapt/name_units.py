"""What statements read and write: names, and attributes of ``self``, each called a unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

SELF = "self"


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a node and all in it, in the order of the text."""
    # libcst.matchers finds nodes, too, but not in the order of the text.
    yield node
    for child in node.children:
        yield from walk(child)


def unit_of(node: cst.CSTNode | None) -> str:
    """Return the unit that an expression is, as ``x`` or ``self.model``; an empty text for all others."""
    # Attributes of other objects are followed by those objects: only `self` has no other name.
    if isinstance(node, cst.Name):
        return node.value
    is_own = (
        isinstance(node, cst.Attribute)
        and isinstance(node.value, cst.Name)
        and node.value.value == SELF
    )
    return f"{SELF}.{node.attr.value}" if is_own and isinstance(node, cst.Attribute) else ""


def root_unit(node: cst.CSTNode) -> str:
    """Return the unit at the beginning of a chain of attributes, calls and subscripts."""
    while not unit_of(node):
        if isinstance(node, cst.Attribute | cst.Subscript | cst.Await):
            node = node.value if not isinstance(node, cst.Await) else node.expression
        elif isinstance(node, cst.Call):
            node = node.func
        else:
            return ""
    return unit_of(node)


class _Reads(cst.CSTVisitor):
    """Collects the expressions of a node that are units and are not only written."""

    def __init__(self) -> None:
        self.nodes: list[cst.Name | cst.Attribute] = []
        self.own: set[str] = set()

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if unit_of(node):
            self.nodes.append(node)
            return False
        node.value.visit(self)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        self.nodes.append(node)

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)  # the keyword is no name
        return False

    def visit_AssignTarget(self, node: cst.AssignTarget) -> bool:
        _visit_target(node.target, self)
        return False

    def visit_AnnAssign(self, node: cst.AnnAssign) -> bool:
        _visit_target(node.target, self)
        if node.value is not None:
            node.value.visit(self)
        return False

    def visit_For(self, node: cst.For) -> bool:
        # The target is written, not read.
        for part in (node.iter, node.body, node.orelse):
            if part is not None:
                part.visit(self)
        return False

    def visit_AsName(self, node: cst.AsName) -> bool:
        return False

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self.own.update(target_units(node.target))

    def visit_Lambda(self, node: cst.Lambda) -> None:
        self.own.update(parameter.name.value for parameter in node.params.params)

    def visit_Param(self, node: cst.Param) -> bool:
        if node.default is not None:
            node.default.visit(self)
        return False

    def visit_Annotation(self, node: cst.Annotation) -> bool:
        # Types are no values, and often name classes that are imported for checkers alone.
        return False

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False


def _visit_target(target: cst.BaseExpression, visitor: cst.CSTVisitor) -> None:
    """Look at a target of an assignment: what is written whole is not read, what is changed in part is."""
    # `x[i] = y` needs x as it was, and `x = y` does not.
    if isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            _visit_target(element.value, visitor)
    elif not unit_of(target):
        target.visit(visitor)


def read_nodes(node: cst.CSTNode) -> list[cst.Name | cst.Attribute]:
    """Return the expressions of a node that read a unit, in their order."""
    # Names of comprehensions and lambdas are theirs: they hide those of the function.
    reads = _Reads()
    node.visit(reads)
    return [one for one in reads.nodes if unit_of(one) not in reads.own]


def reads(*nodes: cst.CSTNode) -> dict[str, None]:
    """Return the units that nodes read, in the order of their first use."""
    return {unit_of(read_node): None for node in nodes for read_node in read_nodes(node)}


def target_units(target: cst.BaseExpression) -> list[str]:
    """Return the units that an assignment to a target writes, or changes in part."""
    if isinstance(target, cst.Tuple | cst.List):
        return [unit for element in target.elements for unit in target_units(element.value)]
    if isinstance(target, cst.StarredElement):
        return target_units(target.value)
    unit = root_unit(target)
    return [unit] if unit else []


def own_writes(node: cst.CSTNode) -> Iterable[str]:
    """Yield the units that a node itself writes or changes, without those in its parts."""
    if isinstance(node, cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.For | cst.NamedExpr):
        yield from target_units(node.target)
    elif isinstance(node, cst.AsName) and isinstance(node.name, cst.Name | cst.Tuple | cst.List):
        yield from target_units(node.name)
    elif isinstance(node, cst.Expr):
        yield from _changed(node.value)


def _changed(value: cst.BaseExpression) -> Iterable[str]:
    """Yield what a call for its effect alone changes: ``x.unsqueeze_(1)``, ``losses.append(x)``."""
    # Python's own convention for lists and torch's for tensors; other methods are taken to change nothing.
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        name = value.func.attr.value
        if name.endswith("_") or name in {"append", "extend", "update", "insert"}:
            yield root_unit(value.func.value)


def writes(*nodes: cst.CSTNode) -> dict[str, None]:
    """Return the units that statements write or change, those in their blocks included."""
    found = (unit for node in nodes for inner in walk(node) for unit in own_writes(inner))
    return {unit: None for unit in found if unit}


def needs_before(statements: Iterable[cst.CSTNode], unit: str) -> bool | None:
    """Whether statements read what a unit had before them; None if they neither read nor write it."""
    # Branch by branch: `if a: x = 1; x += 1` needs no x.
    for statement in statements:
        found: bool | None = None
        if isinstance(statement, cst.If):
            inner = (
                statement.orelse.body.body
                if isinstance(statement.orelse, cst.Else)
                else [statement.orelse]
            )
            branches = [
                needs_before(statement.body.body, unit),
                needs_before([part for part in inner if part is not None], unit),
            ]
            test = unit in reads(statement.test)
            found = True if test or True in branches else (False if False in branches else None)
        elif isinstance(statement, cst.For):
            # Its body has the target; and of what it writes first itself it needs nothing.
            given = unit in target_units(statement.target)
            found = unit in reads(statement.iter) or (
                False if given else needs_before(statement.body.body, unit)
            )
        elif unit in reads(statement):
            found = True
        elif unit in writes(statement):
            found = False
        if found is not None:
            return found
    return None


def argument(call: cst.Call, name: str, position: int | None = None) -> cst.Arg | None:
    """Return an argument of a call.

    Args:
        call: The call.
        name: Its keyword.
        position: Its place, counted from 0; None if it can only be given by keyword.
    """
    # A keyword wins: behind it, positions are counted among plain arguments only.
    for one in call.args:
        if one.keyword is not None and one.keyword.value == name:
            return one
    plain = [one for one in call.args if one.keyword is None]
    if position is None or len(plain) <= position or any(one.star for one in plain[: position + 1]):
        return None
    return plain[position]


def attribute_name(node: cst.BaseExpression) -> str:
    """Return the last name of an attribute, as ``step`` of ``optimizer.step``; else an empty text."""
    return node.attr.value if isinstance(node, cst.Attribute) else ""
