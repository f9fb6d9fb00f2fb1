"""Check of the last batch of a data set: is it smaller than the compiled one, and is it run?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from samba_onnx.tools.lint.context import LintContext
from samba_onnx.tools.lint.findings import Remark, Remarks
from samba_onnx.tools.lint.loop_checks import Steps, calls_to
from samba_onnx.tools.lint.session_calls import RUN
from samba_onnx.tools.lint.source import (
    Function,
    Loop,
    SourceFile,
    argument,
    has_open_arguments,
    literal,
    quoted,
)

_LOADERS: Final = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_DEEPEST: Final = 6
"""How many names and functions are followed from a loader to the loop that goes through it."""
_SIZES: Final = frozenset({"len", "numel", "shape", "size"})
"""What a test of the size of a batch is written with."""


def last_batches(source: SourceFile, context: LintContext) -> Remarks:
    """Find loaders whose last batch is smaller than the compiled one, and goes to the device."""
    # A file of a program that never runs a device may train on the host as it likes.
    if not context.calls(*RUN):
        return
    steps = Steps(source)
    for call, dotted in source.calls:
        if dotted not in _LOADERS or not _ends_with_a_rest(call):
            continue
        if any(_runs_all(source, steps, loop) for loop in _loops_over(source, call)):
            message = f"{quoted(call)} ends an epoch with a batch of what is left"
            yield Remark("smaller-last-batch", call, message)


def _ends_with_a_rest(call: ast.Call) -> bool:
    """Whether a loader gives what is left at the end as a batch of its own."""
    whole = argument(call, "drop_last", 8)
    if has_open_arguments(call) or argument(call, "batch_sampler", 4) is not None:
        return False
    # Without a batch size the loader gives single elements, or what its sampler says.
    size = argument(call, "batch_size", 1)
    if size is None or literal(size) == 1:  # every batch of one is whole
        return False
    return whole is None or literal(whole) is False


def _runs_all(source: SourceFile, steps: Steps, loop: Loop) -> bool:
    """Whether every iteration of a loop runs the device, without having looked at its batch's size."""
    return steps.has(loop) and not any(
        isinstance(node, ast.If) and _is_of_size(node.test) and source.loop_of(node) is loop
        for node in ast.walk(loop)
    )


def _is_of_size(test: ast.expr) -> bool:
    """Whether a condition is about the size of something, as where a smaller batch is left out."""
    named = (node for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute))
    words = (node.id if isinstance(node, ast.Name) else node.attr for node in named)
    return not _SIZES.isdisjoint(words)


def _loops_over(source: SourceFile, made: ast.expr, depth: int = 0) -> Iterator[Loop]:
    """Yield the loops that go through what an expression makes, as far as the text of the file tells."""
    if depth > _DEEPEST:
        return
    inner: ast.AST = made
    for above in source.enclosing(made):
        # Case 1: it is what a loop goes through, in enumerate(), tqdm() or SambaLoader() or without.
        if isinstance(above, ast.For | ast.AsyncFor) and inner is above.iter:
            yield above
            return
        # Case 2: it is given to a function of the file.
        if isinstance(above, ast.Call) and inner is not above.func:
            for name in _parameters(source, above, inner):
                yield from _uses(source, name, depth)
        # Case 3: it has a name from here on.
        if isinstance(above, ast.Assign):
            for name in _targets(above, made):
                yield from _uses(source, name, depth)
            # What happens behind the assignment is followed from the name.
            return
        # Case 4: a function returns it.
        if isinstance(above, ast.Return):
            for result in _results(source, above, made):
                yield from _loops_over(source, result, depth + 1)
            return
        if isinstance(above, ast.stmt):
            # Any other statement hands the loader to nobody.
            return
        inner = above


def _results(source: SourceFile, returned: ast.Return, made: ast.expr) -> Iterator[ast.expr]:
    """Yield the calls of the function that returns an expression, or what is unpacked of them."""
    function = source.function_of(returned)
    place = None
    if isinstance(returned.value, ast.Tuple):
        items = returned.value.elts
        # Of several values that are returned, only the one at the same place is the loader.
        place = next((i for i, item in enumerate(items) if made in ast.walk(item)), None)
    for call in calls_to(source, function) if function is not None else ():
        above = next(source.enclosing(call))
        match above:
            case ast.Assign(targets=[ast.Tuple(elts=names)]) if place is not None:
                yield from _reads(source, names[place]) if place < len(names) else ()
            case _:
                yield call


def _uses(source: SourceFile, name: ast.expr, depth: int) -> Iterator[Loop]:
    """Yield the loops over what has a name, or is ``self.name``, wherever that is read."""
    for node in _reads(source, name):
        yield from _loops_over(source, node, depth + 1)


def _reads(source: SourceFile, name: ast.expr) -> Iterator[ast.expr]:
    """Yield the places that read a name in its function, or ``self.name`` in the file."""
    text = ast.unparse(name)
    # An attribute of `self` is read by other methods, a name in its function only.
    scope = source.function_of(name) if isinstance(name, ast.Name) else None
    for node in ast.walk(scope or source.tree):
        if (
            isinstance(node, ast.Name | ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and ast.unparse(node) == text
        ):
            yield node


def _targets(assignment: ast.Assign, made: ast.expr) -> Iterator[ast.expr]:
    """Yield the names that an expression is assigned to, which may be one of several on a line."""
    for target in assignment.targets:
        values = assignment.value
        if not isinstance(target, ast.Tuple):
            yield target
        elif isinstance(values, ast.Tuple) and len(values.elts) == len(target.elts):
            pairs = zip(target.elts, values.elts, strict=True)
            yield from (name for name, value in pairs if made in ast.walk(value))
        else:
            # A call may return the loader among others, and the text does not say at which place.
            yield from target.elts


def _parameters(source: SourceFile, call: ast.Call, given: ast.AST) -> Iterator[ast.expr]:
    """Yield the parameter of a function of the file that an argument of a call is, as it is read there."""
    for function in source.functions:
        if call not in calls_to(source, function):
            continue
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        if source.class_of(function) is not None:
            # `self` is not among the arguments of the call.
            names = names[1:]
        own = dict(zip(names, call.args, strict=False))
        own |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        parameter = next((name for name, value in own.items() if value is given), None)
        yield from _first_read(function, parameter)


def _first_read(function: Function, name: str | None) -> Iterator[ast.expr]:
    """Yield a place at which a function reads one of its parameters, if it does."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            yield node
            return
