"""The statements of a method in the place of its call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from samba_onnx.tools.adapt.graph_code import substituted
from samba_onnx.tools.adapt.name_units import SELF, attribute_name, unit_of, walk, writes


class RefusedMethodError(Exception):
    """A method whose statements cannot stand anywhere else."""

    def __init__(self, node: cst.CSTNode, why: str, instead: str = "") -> None:
        super().__init__(why)
        self.node = node
        self.instead = instead


@dataclass(frozen=True)
class InlinedMethod:
    """What a method does, as statements of the function that called it."""

    statements: tuple[cst.BaseStatement, ...]
    result: cst.BaseExpression | None
    """What it returns."""


Methods = Mapping[str, cst.FunctionDef]


class Inlining:
    """Writes methods of one object where they are called."""

    def __init__(
        self, methods: Methods, owner: str, fresh: Callable[[str], str], taken: Sequence[str] = ()
    ) -> None:
        """Take what the object can do.

        Args:
            methods: Its methods, by name.
            owner: The variable that holds it.
            fresh: Returns a name that is free.
            taken: Names that the function around has for something else.
        """
        self._methods = methods
        self._owner = owner
        self._fresh = fresh
        self._taken = set(taken)

    def method(
        self, function: cst.FunctionDef, given: Sequence[cst.BaseExpression | None], depth: int = 0
    ) -> InlinedMethod:
        """Return a method's statements.

        Args:
            function: The method.
            given: What it is given, without the object; None keeps the parameter's own name.
            depth: How many calls lead to it.

        Raises:
            RefusedMethodError: It returns from within a block, or is given too much.
        """
        body = _body(function)
        last = body[-1] if body else None
        result = _returned(last)
        inner = body[:-1] if result is not _NOTHING else body
        for node in (one for statement in inner for one in walk(statement)):
            # What follows such a return would be executed all the same.
            if isinstance(node, cst.Return | cst.Yield):
                raise RefusedMethodError(node, "the method returns at several places")
        codes = self._names(function, given, body)
        statements: list[cst.BaseStatement] = []
        for one in inner:
            statements += self._statement(one, codes, depth)
        value = None if result is _NOTHING else result
        if value is not None:
            called = self._called(value)
            if called is not None and depth < 4:
                # A method that only calls another, as training_step its shared_step; four deep, for some call themselves.
                more = self.method(called, _arguments(value, codes), depth + 1)
                return InlinedMethod((*statements, *more.statements), more.result)
            value = _expression(substituted(value, codes))
        return InlinedMethod(tuple(statements), value)

    def _names(
        self,
        function: cst.FunctionDef,
        given: Sequence[cst.BaseExpression | None],
        body: Sequence[cst.BaseStatement],
    ) -> dict[str, str]:
        """Return what each name of the method is called where it is written now."""
        params = [parameter.name.value for parameter in function.params.params]
        if not params or function.params.star_kwarg is not None:
            raise RefusedMethodError(function, "the method takes any number of arguments")
        # What the method calls self is a variable here.
        codes = {params[0]: self._owner}
        module = cst.Module(body=[])
        for place, name in enumerate(params[1:]):
            value = (
                given[place] if place < len(given) else function.params.params[place + 1].default
            )
            codes[name] = module.code_for_node(value) if value is not None else name
        own = [unit for unit in writes(*body) if "." not in unit and unit not in codes]
        for unit in own:
            # Its variables would overwrite those of the function around it.
            codes[unit] = self._fresh(unit) if unit in self._taken else unit
        # The caller's variable would change with it.
        if any(codes[name] != name and name in writes(*body) for name in params[1:]):
            raise RefusedMethodError(
                function, "the method gives one of its arguments another value"
            )
        return codes

    def _statement(
        self, statement: cst.BaseStatement, codes: dict[str, str], depth: int
    ) -> list[cst.BaseStatement]:
        # `loss, acc = self.shared_step(batch)`: the statements of that method, and its result.
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        if isinstance(small, cst.Assign):
            called = self._called(small.value)
            if called is not None and depth < 4:
                more = self.method(called, _arguments(small.value, codes), depth + 1)
                if more.result is None:
                    raise RefusedMethodError(statement, "the method returns nothing")
                line = statement.with_changes(body=[small.with_changes(value=more.result)])
                targets = {unit: code for unit, code in codes.items() if unit in writes(statement)}
                return [*more.statements, _whole(substituted(line, targets))]
        return [_whole(substituted(statement, codes))]

    def _called(self, value: cst.BaseExpression) -> cst.FunctionDef | None:
        """Return the method of the same object that an expression calls, if it is one that a step is made of."""
        if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
            return None
        # forward is the model's, which stays a module and is called as one.
        if unit_of(value.func.value) != SELF or attribute_name(value.func) == "forward":
            return None
        found = self._methods.get(attribute_name(value.func))
        if found is None or any(
            argument.keyword is not None or argument.star for argument in value.args
        ):
            return None
        return found


_NOTHING = cst.Name("nothing")


def _body(function: cst.FunctionDef) -> list[cst.BaseStatement]:
    """Return the statements of a method without the text about it."""
    body = [one for one in function.body.body if isinstance(one, cst.BaseStatement)]
    first = body[0].body[0] if body and isinstance(body[0], cst.SimpleStatementLine) else None
    return (
        body[1:]
        if isinstance(first, cst.Expr) and isinstance(first.value, cst.BaseString)
        else body
    )


def _returned(statement: cst.BaseStatement | None) -> cst.BaseExpression:
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if isinstance(small, cst.Return):
        return small.value or cst.Name("None")
    return _NOTHING


def _arguments(
    call: cst.BaseExpression, codes: Mapping[str, str]
) -> list[cst.BaseExpression | None]:
    assert isinstance(call, cst.Call)
    return [_expression(substituted(argument.value, codes)) for argument in call.args]


def _expression(node: cst.CSTNode) -> cst.BaseExpression:
    assert isinstance(node, cst.BaseExpression)
    return node


def _whole(node: cst.CSTNode) -> cst.BaseStatement:
    assert isinstance(node, cst.BaseStatement)
    return node
