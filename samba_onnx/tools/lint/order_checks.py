"""Checks of the order in which a program traces, and runs sections."""

from __future__ import annotations

import ast
from typing import Final

from samba_onnx.tools.lint.context import Check, LintContext
from samba_onnx.tools.lint.findings import Remark, Remarks
from samba_onnx.tools.lint.loop_checks import Steps, calls_to
from samba_onnx.tools.lint.session_calls import COMPILE, RUN, calls_of
from samba_onnx.tools.lint.source import Function, SourceFile, argument, literal, quoted

_TRACING: Final = ("trace_graph", "trace_multigraph", "common_app_driver")
"""Ends of names of what traces; by whatever module a program has it from."""
_ACCUMULATES: Final = "gradient_accumulation"
_MAIN: Final = "__main__"


def runs_before_traces(source: SourceFile, context: LintContext) -> Remarks:
    """Find runs of a program that was not traced yet."""
    runs = list(calls_of(source, RUN))
    traces = _tracing(source)
    # Another file that traces may do so first; which file begins is not in the text.
    if not runs or any(_tracing(file) for file in context.files if file is not source):
        return
    if not traces:
        # Without a compilation the file may be a part of a program that is traced elsewhere.
        names = map(_last_name, (call for call, _ in source.calls))
        if any(calls_of(source, COMPILE)) and not any("trace" in name for name in names):
            yield Remark(
                "run-before-trace", runs[0], f"{quoted(runs[0].func)} runs what nothing traced"
            )
        return
    scopes = {source.function_of(call) for call in traces}
    # Traces of several functions have no order among them.
    if len(scopes) != 1:
        return
    (scope,) = scopes
    first = min(call.lineno for call in traces)
    # A function that runs is as early as the call of it.
    for call in (*runs, *_callers(source, runs, traces)):
        is_before = source.function_of(call) is scope and call.lineno < first
        if is_before and not _is_optional(source, call):
            message = f"{quoted(call.func)} runs before line {first}, where the program is traced"
            yield Remark("run-before-trace", call, message)
            # The first is enough: all that follow are wrong for the same reason.
            return


def overwritten_gradients(source: SourceFile, context: LintContext) -> Remarks:
    """Find backward passes in every step beside optimizer steps in some, which do not add up."""
    # Anywhere in the program: gradients that add up are asked for once, when it is compiled.
    if any(_adds_up(call) for file in context.files for call, _ in file.calls):
        return
    steps = Steps(source)
    for call in calls_of(source, RUN):
        kinds = _kinds(call)
        # A run with OPT uses the gradients at once, and one with ZEROGRAD starts them anew.
        adds_none = "BCKWD" in kinds and not kinds & {"OPT", "ZEROGRAD"}
        if adds_none and steps.repeats(call) and _steps_seldom(source, call):
            message = f"{quoted(call.func)} overwrites the gradients of the batch before"
            yield Remark("gradient-overwritten", call, message)


def _tracing(source: SourceFile) -> list[ast.Call]:
    """Return the calls of a file that trace."""
    return [call for call, _ in source.calls if _last_name(call) in _TRACING]


def _last_name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _callers(source: SourceFile, runs: list[ast.Call], traces: list[ast.Call]) -> list[ast.Call]:
    """Return the calls of functions that run, and trace nothing themselves."""
    tracing = {source.function_of(call) for call in traces}
    # A function that also traces may do it before it runs.
    functions = {source.function_of(call) for call in runs} - tracing - {None}
    return [
        call
        for function in source.functions
        if function in functions
        for call in calls_to(source, function)
    ]


def _is_optional(source: SourceFile, node: ast.AST) -> bool:
    """Whether a condition decides if a node is executed, other than that the file is the program."""
    for above in source.enclosing(node):
        if isinstance(above, Function | ast.Lambda):
            return False
        if isinstance(above, ast.IfExp | ast.ExceptHandler | ast.Match):
            return True
        # `if __name__ == "__main__"` is no condition of the program's.
        if isinstance(above, ast.If) and _MAIN not in ast.unparse(above.test):
            return True
    return False


def _kinds(call: ast.Call) -> set[str]:
    """Return the types of sections that a run executes; empty where they are not written out."""
    given = literal(argument(call, "section_types", 6))
    words = given if isinstance(given, list | tuple) else [given]
    return {word.upper() for word in words if isinstance(word, str)}


def _adds_up(call: ast.Call) -> bool:
    """Whether a call asks for gradients that add up, or sets them to zero."""
    given = argument(call, _ACCUMULATES)
    # Sections that are not written out could be any, and count as none.
    return (given is not None and literal(given) is not False) or "ZEROGRAD" in _kinds(call)


def _steps_seldom(source: SourceFile, backward: ast.Call) -> bool:
    """Whether the optimizer steps after some of the backward passes only, or after the last."""
    loop = source.loop_of(backward)
    for call in calls_of(source, RUN):
        if "OPT" not in _kinds(call):
            continue
        if source.function_of(call) is not source.function_of(backward):
            continue
        outer = source.loop_of(call)
        # A step after every so many batches, in the same loop.
        if outer is loop and source.is_conditional(call):
            return True
        # A step behind the loop over all batches.
        if outer is not loop and loop is not None and loop in ast.walk(outer or source.tree):
            return True
    return False


ORDER_CHECKS: tuple[Check, ...] = (runs_before_traces, overwritten_gradients)
