"""Checks of the model when it is converted: its mode, its optimizer, its type."""

from __future__ import annotations

import ast
from typing import Final

from samba_onnx.tools.lint.context import Check, LintContext
from samba_onnx.tools.lint.findings import Remark, Remarks
from samba_onnx.tools.lint.session_calls import CONVERT, FACTORIES, OPTIMIZER_HOMES, calls_of
from samba_onnx.tools.lint.source import Function, SourceFile, argument, literal, quoted

_PRETRAINED: Final = "from_pretrained"
"""The function of transformers that returns models in evaluation mode."""
_NARROW: Final = frozenset({"bfloat16", "half"})
"""Types of 16 bits, by the methods of modules and tensors that make them."""
_WIDE: Final = frozenset({"double", "float"})


def modes(source: SourceFile, context: LintContext) -> Remarks:
    """Find models that are converted in evaluation mode, in programs that have an optimizer."""
    # Without an optimizer the program runs models only, in the mode that fits.
    if not any(
        name.rpartition(".")[0] in OPTIMIZER_HOMES
        for file in context.files
        for _, name in file.calls
    ):
        return
    for call in calls_of(source, CONVERT):
        model = argument(call, "model", 0)
        if isinstance(model, ast.Name) and _evaluates(source, call, model.id):
            message = f"`{model.id}` is in evaluation mode when {quoted(call.func)} converts it"
            yield Remark("evaluation-mode", call, message)


def _evaluates(source: SourceFile, before: ast.AST, model: str) -> bool:
    """Whether the last line that sets the mode of a model switches training off, in the same function."""
    # Both have lines, by which what comes before the conversion is told.
    assert isinstance(before, ast.expr | ast.stmt)
    scope = source.function_of(before) or source.tree
    modes: dict[int, bool] = {}
    for node in ast.walk(scope):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="eval" | "train" as mode)
            ):
                # `train(False)` is the same as `eval()`.
                off = mode == "eval" or literal(argument(node, "mode", 0)) is False
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as made):
                off = _is_made_evaluating(source, made)
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr="training")]):
                off = literal(node.value) is False
            case _:
                continue
        # The last one before the conversion counts; one under a condition may not be executed.
        if name == model and node.lineno < before.lineno and not source.is_conditional(node):
            modes[node.lineno] = off
    return bool(modes) and modes[max(modes)]


def _is_made_evaluating(source: SourceFile, made: ast.Call) -> bool:
    """Whether a call makes a model in evaluation mode, or one that has such a model within."""
    match made.func:
        # Case 1: transformers makes it, or the same line switches training off.
        case ast.Attribute(attr=name):
            return name in (_PRETRAINED, "eval")
        # Case 2: a function of the file makes it.
        case ast.Name(id=name) if function := _function(source, name):
            return any(
                _returns_evaluating(source, node)
                for node in ast.walk(function)
                if isinstance(node, ast.Return) and source.function_of(node) is function
            )
        # Case 3: a class of the file keeps one that transformers makes. Its own mode is not that one's.
        case ast.Name(id=name) if name in source.classes:
            return any(
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Attribute)
                and isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Attribute)
                and node.value.func.attr == _PRETRAINED
                for node in ast.walk(source.classes[name])
            )
    return False


def _function(source: SourceFile, name: str) -> Function | None:
    """Return the function of a file by its name; None for a method, and without one."""
    named = (function for function in source.functions if function.name == name)
    return next((one for one in named if source.class_of(one) is None), None)


def _returns_evaluating(source: SourceFile, node: ast.Return) -> bool:
    match node.value:
        case ast.Call() as made:
            return _is_made_evaluating(source, made)
        case ast.Name(id=name):
            return _evaluates(source, node, name)
    return False


def early_optimizers(source: SourceFile, context: LintContext) -> Remarks:
    """Find optimizers that were given a model's parameters before the conversion replaced these."""
    for conversion in calls_of(source, CONVERT):
        model = argument(conversion, "model", 0)
        if model is None:
            continue
        scope = source.function_of(conversion)
        for call, dotted in source.calls:
            is_optimizer = dotted.rpartition(".")[0] in OPTIMIZER_HOMES
            # In the same function: lines of different functions have no order.
            is_before = call.lineno < conversion.lineno and source.function_of(call) is scope
            if is_optimizer and is_before and _reads_parameters(call, ast.unparse(model)):
                message = f"{quoted(call.func)} is given parameters that line {conversion.lineno} replaces"
                yield Remark("optimizer-before-conversion", call, message)


def _reads_parameters(call: ast.Call, model: str) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        # Either may be handed on, also filtered or in groups.
        and node.attr in ("parameters", "named_parameters")
        and ast.unparse(node.value) == model
        for node in ast.walk(call)
    )


def types(source: SourceFile, context: LintContext) -> Remarks:
    """Find models of 16 bits whose floating-point dummy inputs stay in float32."""
    for conversion in calls_of(source, CONVERT):
        model = argument(conversion, "model", 0)
        scope = source.function_of(conversion)
        narrow = None if model is None else _narrow_type(source, scope, ast.unparse(model))
        if narrow is None:
            continue
        for call, dotted in source.calls:
            # Dummies of integers have no type of floats to agree with.
            if dotted not in FACTORIES or dotted == "samba.randint":
                continue
            if source.function_of(call) is scope and _is_wide(source, call):
                message = f"{quoted(call)} is float32, and the model is `{narrow}`"
                yield Remark("mixed-types", call, message)


def _narrow_type(source: SourceFile, scope: Function | None, model: str) -> str | None:
    """Return the type of 16 bits that a whole model is converted to; None where it is not."""
    for node in ast.walk(scope or source.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                is_model = ast.unparse(owner) == model or _is_assigned(source, node, model)
                # The whole model and always: under a condition, or of a part, other types may be
                # right.
                if is_model and name in _NARROW and not source.is_conditional(node):
                    return name
    return None


def _is_assigned(source: SourceFile, made: ast.Call, name: str) -> bool:
    """Whether the result of a call gets a name on its line, as ``model = Net().bfloat16()``."""
    statement = next((a for a in source.enclosing(made) if isinstance(a, ast.stmt)), None)
    return isinstance(statement, ast.Assign) and name in map(ast.unparse, statement.targets)


def _is_wide(source: SourceFile, made: ast.Call) -> bool:
    """Whether a dummy stays in float32: no type is stated, and no method narrows it in the end."""
    # A stated type is what the user wants, whatever it is.
    if argument(made, "dtype") is not None:
        return False
    inner: ast.AST = made
    wide = True
    for above in source.enclosing(made):
        match above:
            case ast.Attribute(value=value, attr=name) if value is inner:
                # The last method counts: `.bfloat16().float()` is wide again. What `to` makes is
                # not known.
                wide = name in _WIDE or (wide and name not in (*_NARROW, "to", "type", "type_as"))
            case ast.Call(func=called) if called is inner:
                pass
            case _:
                break
        inner = above
    return wide


MODEL_CHECKS: tuple[Check, ...] = (modes, early_optimizers, types)
