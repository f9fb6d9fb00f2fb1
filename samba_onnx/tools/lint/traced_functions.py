"""Which functions of a program are traced: every ``forward``, and what one of them calls.

A value that reaches a helper is looked at there, too: a parameter of a helper is a tensor where
some call in a traced function hands it one.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from samba_onnx.tools.lint.source import Function, SourceFile
from samba_onnx.tools.lint.tensor_values import Holding, TensorValues, parameter_kinds


class TracedFunctions:
    """The traced functions of one file, each with what its expressions hold."""

    def __init__(self, source: SourceFile) -> None:
        """Follow all calls from ``forward``."""
        self._source = source
        # A function becomes a forward by assignment, in programs that patch a library's model.
        self._assigned = frozenset(_assigned_forwards(source))
        self._tensors: dict[Function, dict[str, Holding]] = defaultdict(dict)
        self.values: dict[Function, TensorValues] = {}
        pending = [function for function in source.functions if self._is_forward(function)]
        while pending:
            function = pending.pop()
            self.values[function] = TensorValues(
                source,
                function,
                # A forward knows its parameters by their text as well, a helper only by its calls.
                parameter_kinds(source, function) | self._tensors[function]
                if self._is_forward(function)
                else self._tensors[function],
                self._attributes(function),
            )
            pending += self._called(function)

    def _is_forward(self, function: Function) -> bool:
        """Whether a function is the forward of a module; that of an autograd.Function is none."""
        owner = self._source.class_of(function)
        return function in self._assigned or (
            owner is not None
            and function.name == "forward"
            # A decorator may make another function of it, as `staticmethod` does.
            and not function.decorator_list
            and bool(function.args.args)
        )

    def _called(self, function: Function) -> list[Function]:
        """Return the functions of this file whose parameters hold more than was known before."""
        changed = []
        for call in ast.walk(function):
            callee = self._callee(function, call) if isinstance(call, ast.Call) else None
            if not isinstance(call, ast.Call) or callee is None or self._is_forward(callee):
                continue
            kinds = self.values[function].kinds_of_arguments(call, callee)
            known = self._tensors[callee]
            # Looked through again only where something new is known, so that recursive helpers come
            # to an end.
            if callee not in self.values or any(
                kind is not Holding.OTHER and known.get(name) is not kind
                for name, kind in kinds.items()
            ):
                # Kinds are added and never taken back, for a helper may be called with tensors at
                # one place only.
                known.update({n: kind for n, kind in kinds.items() if kind is not Holding.OTHER})
                changed.append(callee)
        return changed

    def _callee(self, caller: Function, call: ast.Call) -> Function | None:
        """Return the function of this file that a call leads to; None if it is of another."""
        match call.func:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                owner = self._source.class_of(caller)
                # The class of the caller: what overrides a method elsewhere is not in the text.
                return _method(self._source, owner, name) if owner is not None else None
            case ast.Name(id=name):
                return _function(self._source, name)
        return None

    def _attributes(self, function: Function) -> frozenset[str]:
        """Return the attributes of a function's module that hold a parameter or buffer."""
        owner = self._source.class_of(function)
        return frozenset() if owner is None else _tensor_attributes(self._source, owner)


def _function(source: SourceFile, name: str) -> Function | None:
    """Return the function of a file that is no method, by its name."""
    functions = (node for node in source.tree.body if isinstance(node, Function))
    return next((function for function in functions if function.name == name), None)


def _assigned_forwards(source: SourceFile) -> Iterator[Function]:
    """Yield the functions that a file makes the forward of a class or module."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id="forward") | ast.Attribute(attr="forward")],
                value=ast.Name(id=name),
            ):
                function = _function(source, name)
                if function is not None and function.args.args:
                    yield function


def _method(source: SourceFile, owner: ast.ClassDef, name: str) -> Function | None:
    """Return a method of a class or of its bases in the same file."""
    # At most as many steps as there are classes, since a text may have bases in a circle.
    for _ in range(len(source.classes)):
        for node in owner.body:
            if isinstance(node, Function) and node.name == name:
                return node
        bases = [base.id for base in owner.bases if isinstance(base, ast.Name)]
        # The first base that the file defines; bases from elsewhere cannot be read.
        above = next((source.classes[base] for base in bases if base in source.classes), None)
        if above is None:
            return None
        owner = above
    return None


_PARAMETERS = ("torch.nn.Parameter", "torch.nn.parameter.Parameter", "samba.SambaParameter")
_REGISTRATIONS = frozenset({"register_buffer", "register_parameter"})


def _tensor_attributes(source: SourceFile, owner: ast.ClassDef) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(owner):
        match node:
            # Other attributes are modules or values of Python, until the text says otherwise.
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                value=ast.Call(func=function),
            ) if source.names.dotted(function) in _PARAMETERS:
                names.add(name)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="self"), attr=method),
                args=[ast.Constant(value=str(name)), *_],
            ) if method in _REGISTRATIONS:
                names.add(name)
    return frozenset(names)
