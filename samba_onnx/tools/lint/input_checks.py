"""Checks of the tensors that a program gives to the device: names, types, sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from samba_onnx.tools.lint.context import Check, LintContext
from samba_onnx.tools.lint.findings import Remark, Remarks
from samba_onnx.tools.lint.session_calls import COMPILE, FACTORIES, RUN, TRACE, WRAP, calls_of
from samba_onnx.tools.lint.source import (
    Function,
    SourceFile,
    argument,
    has_open_arguments,
    literal,
    quoted,
)

_TARGETS: Final = re.compile(r"label|target|class", re.IGNORECASE)
# The position of `name` in all functions that wrap a tensor.
_NAME_POSITIONS: Final = dict.fromkeys(WRAP, 1)
_DEEPEST: Final = 6
"""How many names and functions are followed from a call to where a tensor is made."""


def names(source: SourceFile, context: LintContext) -> Remarks:
    """Find inputs that runs cannot tell apart, because they have no name."""
    for call in (*calls_of(source, COMPILE), *calls_of(source, TRACE), *calls_of(source, RUN)):
        runs = source.names.dotted(call.func) in RUN
        inputs = argument(call, "input_tensors", 0) if runs else argument(call, "inputs", 1)
        # What is not in the text cannot be said to lack a name; names of parameters are names
        # enough.
        if inputs is None or _is_keyed(source, inputs):
            continue
        for made in _made(source, inputs):
            dotted = source.names.dotted(made.func)
            if _has_name(made, dotted):
                continue
            message = f"{quoted(made)} is an input without a name"
            yield Remark("unnamed-run-input" if runs else "unnamed-input", made, message)


def _has_name(call: ast.Call, dotted: str) -> bool:
    # With `**options` a name may be among them.
    return (
        has_open_arguments(call) or argument(call, "name", _NAME_POSITIONS.get(dotted)) is not None
    )


def _is_keyed(source: SourceFile, inputs: ast.expr) -> bool:
    """Whether inputs are a dictionary, whose keys are names of parameters."""
    return isinstance(inputs, ast.Dict | ast.DictComp) or any(
        isinstance(value, ast.Dict | ast.DictComp) for value in _values(source, inputs)
    )


def _made(source: SourceFile, inputs: ast.expr, depth: int = 0) -> Iterator[ast.Call]:
    """Yield the calls that make the tensors of some inputs, as far as the text of the file tells."""
    if depth > _DEEPEST:
        return
    match inputs:
        case ast.Tuple(elts=items) | ast.List(elts=items):
            for item in items:
                yield from _made(source, item, depth + 1)
        # A name that is assigned twice may hold either, so that neither is followed.
        case ast.Name():
            for value in _values(source, inputs):
                yield from _made(source, value, depth + 1)
        case ast.Call(func=called):
            if source.names.dotted(called) in (*WRAP, *FACTORIES):
                yield inputs
            elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Call):
                # As samba.randn(2, name="x").bfloat16().float(): casts keep the name.
                yield from _made(source, called.value, depth + 1)
            # Only functions with one return, for the same reason.
            else:
                for value in _returned(source, called):
                    yield from _made(source, value, depth + 1)


def _values(source: SourceFile, name: ast.expr) -> list[ast.expr]:
    """Return what is assigned to a name in the function around it, where it is assigned once."""
    if not isinstance(name, ast.Name):
        return []
    scope = source.function_of(name) or source.tree
    values = [
        node.value
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        and source.function_of(node) is source.function_of(name)
        and any(isinstance(target, ast.Name) and target.id == name.id for target in node.targets)
    ]
    return values if len(values) == 1 else []


def _returned(source: SourceFile, called: ast.expr) -> list[ast.expr]:
    """Return what a function of the same file returns, if it has one return only."""
    if not isinstance(called, ast.Name):
        return []
    for function in source.functions:
        # Methods are left out: which one is called depends on the object.
        if function.name == called.id and source.class_of(function) is None:
            values = _returns(source, function)
            return values if len(values) == 1 else []
    return []


def _returns(source: SourceFile, function: Function) -> list[ast.expr]:
    return [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Return)
        and node.value is not None
        and source.function_of(node) is function
    ]


def targets(source: SourceFile, context: LintContext) -> Remarks:
    """Find classes to be learnt that are int64."""
    for call, dotted in source.calls:
        if dotted != "samba.randint" or not isinstance(
            name := literal(argument(call, "name")), str
        ):
            continue
        dtype = argument(call, "dtype")
        # int64 is the default of randint.
        wide = dtype is None or source.names.dotted(dtype) in ("torch.int64", "torch.long")
        if wide and _TARGETS.search(name):
            message = f"{quoted(call)} makes the target {name!r} of int64"
            yield Remark("int64-target", call, message)


def odd_batches(source: SourceFile, context: LintContext) -> Remarks:
    """Find odd batch sizes, where the target takes even ones only."""
    # Other targets have no halves that share a batch.
    if context.target != "sn30":
        return
    for call, dotted in source.calls:
        size: object = None
        # A factory that states where its batch is: otherwise the first size may be anything.
        if dotted in FACTORIES and isinstance(argument(call, "batch_dim"), ast.Constant):
            size = _first_size(call)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            # The usual option of the vendor's programs, whose default is run when nobody states
            # another one.
            if "--batch-size" in [literal(item) for item in call.args]:
                size = literal(argument(call, "default"))
        elif dotted == "torch.utils.data.DataLoader":
            size = literal(argument(call, "batch_size", 1))
        if isinstance(size, int) and size % 2:
            message = f"{quoted(call)} has a batch size of {size}"
            yield Remark("odd-batch", call, message)


def _first_size(call: ast.Call) -> object:
    """Return the number that a factory's shape begins with, if it is written out."""
    for item in call.args:
        shape = literal(item)
        if isinstance(shape, tuple | list) and shape:
            return shape[0]
        if isinstance(item, ast.Tuple | ast.List) and item.elts:
            return literal(item.elts[0])
    is_randint = isinstance(call.func, ast.Attribute) and call.func.attr == "randint"
    # The first argument of randint is the limit and not a size.
    return literal(call.args[0]) if call.args and not is_randint else None


INPUT_CHECKS: tuple[Check, ...] = (names, targets, odd_batches)
