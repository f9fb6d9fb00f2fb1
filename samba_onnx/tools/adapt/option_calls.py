"""Command lines of click, fire and typer, written as what argparse parses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.name_units import attribute_name, unit_of, walk
from samba_onnx.tools.adapt.option_rows import (
    OptionRow,
    RefusedOptionError,
    click_row,
    fire_row,
    typer_row,
)
from samba_onnx.tools.adapt.plain_form import PlainForm, behind_imports
from samba_onnx.tools.adapt.source import ProgramFile

STARTERS: Final = frozenset(
    {"click.command", "click.group", "fire.Fire", "typer.run", "typer.Typer"}
)
"""What parses a command line in these libraries."""
_LITERAL: Final = '''\
def option_value(text):
    """Read an option as fire does: a literal of Python, or else a text."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
'''


@dataclass
class _Start:
    """A function that a library calls with the options of the command line."""

    function: cst.FunctionDef
    call: cst.Call
    """The call that parses."""
    rows: list[OptionRow] = field(default_factory=list)
    dropped: list[cst.CSTNode] = field(default_factory=list)
    """Decorators and statements of which nothing is left."""


def with_argparse(form: PlainForm) -> PlainForm:
    """Write the command line of a program that has it from a library as one of argparse.

    Args:
        form: The program.
    """
    source = form.source
    # A look at the text is enough for most programs.
    if not any(word in source.text for word in ("click", "fire", "typer")):
        return form
    starters = [call for call in source.calls if source.imported(call.func) in STARTERS]
    if not starters:
        return form
    try:
        start = _start(source, starters)
    except RefusedOptionError as error:
        form.refuse(
            error.node,
            "command-line-library",
            str(error),
            instead="give the options to parse_app_args by a common_parser_fn",
        )
        return form
    changed = source.module.visit(_Rewriting(source, start))
    assert isinstance(changed, cst.Module)
    return form.rewritten({source.path: changed.code})


def _start(source: ProgramFile, starters: list[cst.Call]) -> _Start:
    # SambaFlow's own words, compile and run, stand where commands would.
    if len(starters) > 1:
        raise RefusedOptionError(starters[1], "the program has several commands")
    made = starters[0]
    name = source.imported(made.func)
    if name in {"fire.Fire", "typer.run"}:
        return _run(source, made, name)
    if name == "click.command":
        return _command(source, made, None)
    if name == "typer.Typer":
        return _application(source, made)
    raise RefusedOptionError(made, "the program has several commands")


def _run(source: ProgramFile, made: cst.Call, name: str) -> _Start:
    """Find what ``fire.Fire(main)`` and ``typer.run(main)`` call."""
    given = made.args[0].value if len(made.args) == 1 and made.args[0].keyword is None else None
    function = source.definition(given) if given is not None else None
    if not isinstance(function, cst.FunctionDef):
        raise RefusedOptionError(made, f"{name} is not given a single function of the program")
    _refuse_rest(source, made)
    start = _Start(function, made)
    row = fire_row if name == "fire.Fire" else typer_row
    # Nobody would print it any more.
    if name == "fire.Fire" and _returns(function):
        raise RefusedOptionError(made, "fire prints what this function returns")
    start.rows = [row(source, parameter) for parameter in _parameters(function)]
    return start


def _application(source: ProgramFile, made: cst.Call) -> _Start:
    """Find the one command of ``app = typer.Typer()``."""
    bound = source.parent(made)
    unit = unit_of(bound.targets[0].target) if isinstance(bound, cst.Assign) else ""
    found = [
        (function, one)
        for function in source.functions
        for one in function.decorators
        if isinstance(one.decorator, cst.Call)
        and unit
        and unit_of(getattr(one.decorator.func, "value", None)) == unit
    ]
    decorator = found[0][1].decorator if len(found) == 1 else None
    # A callback is executed before the command, and has options of its own.
    if not isinstance(decorator, cst.Call) or attribute_name(decorator.func) != "command":
        raise RefusedOptionError(made, "the program has several commands, or something before them")
    start = _command(source, made, unit)
    start.dropped += [found[0][1], source.statement(made)]
    return start


def _command(source: ProgramFile, made: cst.Call, application: str | None) -> _Start:
    """Find the function with the decorators of click or typer, and its call."""
    function = (
        next(above for above in source.enclosing(made) if isinstance(above, cst.FunctionDef))
        if application is None
        else next(
            one
            for one in source.functions
            for decorator in one.decorators
            if isinstance(decorator.decorator, cst.Call)
            and unit_of(getattr(decorator.decorator.func, "value", None)) == application
        )
    )
    called = application or function.name.value
    calls = [call for call in source.calls if unit_of(call.func) == called]
    # With arguments it parses those and not the command line.
    if len(calls) != 1 or calls[0].args:
        raise RefusedOptionError(made, "the command is not started once, and without arguments")
    _refuse_rest(source, calls[0])
    start = _Start(function, calls[0])
    if application is not None:
        start.rows = [typer_row(source, parameter) for parameter in _parameters(function)]
        return start
    # argparse has no decorators: nothing of them is left.
    start.dropped += list(function.decorators)
    for one in function.decorators:
        name = source.imported(one.decorator.func) if isinstance(one.decorator, cst.Call) else ""
        if name == "click.command":
            continue
        if name not in {"click.option", "click.argument"} or not isinstance(
            one.decorator, cst.Call
        ):
            # pass_context and the like; an own decorator may do anything.
            raise RefusedOptionError(one, "this decorator changes what the function is given")
        start.rows.append(click_row(source, one.decorator))
    return start


def _refuse_rest(source: ProgramFile, call: cst.Call) -> None:
    """Refuse what stands behind the call: click and typer end the program there."""
    statement = source.statement(call)
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if not isinstance(small, cst.Expr) or small.value is not call:
        raise RefusedOptionError(call, "the result of the command is used")
    if (
        list(source.block(statement))[-1] is not statement
        or source.file(call) is not source.files[0]
    ):
        raise RefusedOptionError(
            call, "the program goes on behind the command, or starts in another file"
        )


def _returns(function: cst.FunctionDef) -> bool:
    return any(
        isinstance(node, cst.Return) and node.value is not None for node in walk(function.body)
    )


def _parameters(function: cst.FunctionDef) -> list[cst.Param]:
    stated = function.params
    if (
        stated.star_kwarg is not None
        or isinstance(stated.star_arg, cst.Param)
        or stated.posonly_params
    ):
        raise RefusedOptionError(function, "the function takes any number of options")
    return [*stated.params, *stated.kwonly_params]


class _Rewriting(cst.CSTTransformer):
    """Writes the parser where the library was started."""

    def __init__(self, source: ProgramFile, start: _Start) -> None:
        super().__init__()
        self._source = source
        self._start = start
        self._line = source.statement(start.call)
        taken = {node.value for node in source.nodes if isinstance(node, cst.Name)}
        # What the program calls so already stays what it is.
        self._args = "args" if "args" not in taken else "command_line"
        self._parser = "parser" if "parser" not in taken else "options_parser"

    def leave_Decorator(
        self, original_node: cst.Decorator, updated_node: cst.Decorator
    ) -> cst.Decorator | cst.RemovalSentinel:
        return cst.RemoveFromParent() if original_node in self._start.dropped else updated_node

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        if original_node is not self._start.function:
            return updated_node
        # Defaults that are the library's own objects say what the option is, and are no values.
        params = [
            parameter.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)
            if isinstance(parameter.default, cst.Call)
            else parameter
            for parameter in updated_node.params.params
        ]
        if any(isinstance(parameter.default, cst.Call) for parameter in updated_node.params.params):
            params = [
                parameter.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)
                for parameter in params
            ]
        return updated_node.with_changes(params=updated_node.params.with_changes(params=params))

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel | cst.FlattenSentinel[cst.BaseStatement]:
        if original_node in self._start.dropped:
            return cst.RemoveFromParent()
        if original_node is not self._line:
            return updated_node
        lines = [f"{self._parser} = argparse.ArgumentParser()"]
        lines += [f"{self._parser}.add_argument({row.code})" for row in self._start.rows]
        lines += [f"{self._args} = {self._parser}.parse_args()"]
        # By name: the order of decorators is another one than that of parameters.
        given = ", ".join(f"{row.name}={self._args}.{row.name}" for row in self._start.rows)
        lines += [f"{self._start.function.name.value}({given})"]
        config = self._source.module.config_for_parsing
        return cst.FlattenSentinel([cst.parse_statement(line, config) for line in lines])

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        # Imports behind those of the program; the first statement that is none ends them.
        known = self._source.files[0].imports.values()
        needed = ["argparse"]
        needed += ["ast"] if any("option_value" in row.code for row in self._start.rows) else []
        new = [cst.parse_statement(f"import {one}") for one in needed if one not in known]
        body = list(updated_node.body)
        place = behind_imports(body)
        if "ast" in needed:
            module = cst.parse_module("\n\n" + _LITERAL, original_node.config_for_parsing)
            function = module.body[0].with_changes(leading_lines=module.header)
            new.append(function)
        return updated_node.with_changes(body=[*body[:place], *new, *body[place:]])
