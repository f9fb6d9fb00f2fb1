"""The command line: SambaFlow's own, with the program's arguments kept in it."""

from __future__ import annotations

import textwrap

import libcst as cst

from samba_onnx.tools.adapt.bindings import Bindings, Thing
from samba_onnx.tools.adapt.edits import Edits
from samba_onnx.tools.adapt.graph_code import statements_text
from samba_onnx.tools.adapt.name_units import (
    argument,
    attribute_name,
    reads,
    target_units,
    unit_of,
    writes,
)
from samba_onnx.tools.adapt.open_points import OpenPoints
from samba_onnx.tools.adapt.program_imports import Names
from samba_onnx.tools.adapt.source import Frame, ProgramFile
from samba_onnx.tools.adapt.source_file import ProgramModule

_OTHER_PARSERS = ("click", "fire", "typer", "absl", "hydra", "tyro", "jsonargparse", "docopt")
_RESERVED = frozenset(
    {"command", "pef", "pef-name", "output-folder", "mapping", "arch", "inference"}
)
"""Arguments that SambaFlow gives a meaning of its own."""


class CommandLine:
    """Plans the change of a program's command line."""

    def __init__(
        self,
        source: ProgramFile,
        bindings: Bindings,
        names: Names,
        edits: Edits,
        points: OpenPoints,
    ) -> None:
        self.source = source
        self.bindings = bindings
        self.names = names
        self.edits = edits
        self.points = points
        self._call = self._parse_call()
        self._own = ""
        self._parsing = ""
        """The call that parses, as it is written now."""
        self._told: list[ProgramModule] = []
        self._guarded: cst.BaseStatement | None = None

    def _parse_call(self) -> cst.Call | None:
        """Return the call that parses the command line with argparse."""
        # The first one: a program that parses twice does the same with both.
        for call in self.source.calls:
            if attribute_name(call.func) in {"parse_args", "parse_known_args"}:
                return call
        return None

    def variable(self, frame: Frame) -> str:
        """Return the variable that holds the command line in a function."""
        if self._call is None:
            return self._in_file(self.source.file(frame), self._own or "args")
        thing = self._kept(self._call)
        unit = self.bindings.unit_in(frame, thing) if thing is not None and not self._own else ""
        if unit:
            return unit
        if not self._own:
            self._make_global()
        return self._in_file(self.source.file(frame), self._own)

    def _in_file(self, file: ProgramModule, name: str) -> str:
        """Return a variable of the file that parses, as another file can read it."""
        # The file that is executed cannot be imported by others: it tells them.
        parsing = self.source.file(self._call)
        if parsing is file:
            return name
        if self._call is not None and self.names.can_import(parsing, file):
            self.names.need(file, f"import {parsing.name}")
            return f"{parsing.name}.{name}"
        if file not in self._told:
            self._told.append(file)
            self.names.after_imports[file].append(f"{name} = None")
            text = f"{file.name}.{name} = {name}"
            self.names.need(parsing, f"import {file.name}")
            self._tell(text)
        return name

    def _tell(self, text: str) -> None:
        what = "the branch that compiles is in another file, and must know the command"
        if self._call is not None:
            self.edits.insert_after(self.source.statement(self._call), text, "command-line", what)
        elif self._guarded is not None:
            self.edits.insert_before(self._guarded, text, "command-line", what)
        else:
            self.names.after_imports[self.source.files[0]].append(text)

    def _kept(self, call: cst.Call) -> Thing | None:
        frame = self.source.frame(call)
        for above in self.source.enclosing(call):
            if isinstance(above, cst.Assign):
                units = target_units(above.targets[0].target)
                return self.bindings.resolve(frame, units[0]) if units else None
            if isinstance(above, cst.Return) and isinstance(frame, cst.FunctionDef):
                sites = self.bindings.call_sites(frame)
                return self._kept(sites[0]) if sites else None
        return None

    def _make_global(self) -> None:
        """Keep the command line where functions that are not given it can read it, too."""
        assert self._call is not None
        self._own = self.names.fresh("samba_args")
        statement = self.source.statement(self._call)
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        units = target_units(small.targets[0].target) if isinstance(small, cst.Assign) else []
        what = "the branch that compiles is in another function, and must know the command"
        text = f"{self._own} = {units[0]}" if units else ""
        if isinstance(self.source.frame(self._call), cst.FunctionDef):
            self.edits.insert_before(statement, f"global {self._own}", "command-line", what)
        if units:
            self.edits.insert_after(statement, text, "command-line", what)
            return
        # `main(parser.parse_args())`: what is parsed gets a name before.
        own = self._own
        self.edits.insert_before(statement, f"{own} = {self._parsing}", "command-line", what)
        self.edits.rewrite(self._call, lambda _: cst.Name(own), "command-line", what)

    def plan(self) -> None:
        """Plan all edits of the command line."""
        self._refuse_others()
        if self._call is None:
            self._add()
            return
        owner = self._call.func.value if isinstance(self._call.func, cst.Attribute) else None
        parser = self._parser(owner)
        if parser is None:
            self.points.add(
                self._call,
                "command-line",
                "nobody can say here what the parser knows",
                instead="parse with parse_app_args(common_parser_fn=...), which adds the program's arguments",
            )
            return
        self._convert(*parser)

    def _refuse_others(self) -> None:
        for node in self.source.nodes:
            if isinstance(node, cst.Import | cst.ImportFrom):
                text = self.source.code(node).split()[1].partition(".")[0].rstrip(",")
                # Those of the first line were refused with their reason, or are argparse's by now.
                if text in _OTHER_PARSERS and text not in {"click", "fire", "typer"}:
                    self.points.add(
                        node,
                        "command-line-library",
                        f"{text} parses the command line, of which SambaFlow's parser takes all",
                        instead="give the options to parse_app_args by a common_parser_fn",
                    )

    def _add(self) -> None:
        """Parse the command line of a program that has none of its own."""
        # A program without options still has to be told whether to compile or to run.
        self._own = (
            self.names.fresh("args")
            if "args" not in self.names.taken
            else self.names.fresh("samba_args")
        )
        guard = self._main_guard()
        text = f"{self._own} = parse_app_args()"
        what = "SambaFlow's command line says whether to compile or to run"
        if guard is not None and guard.body.body:
            first = guard.body.body[0]
            if isinstance(first, cst.BaseStatement):
                self._guarded = first
                self.edits.insert_before(first, text, "command-line", what)
        else:
            self.names.after_imports[self.source.files[0]].append(text)

    def _main_guard(self) -> cst.If | None:
        for statement in self.source.module.body:
            if isinstance(statement, cst.If) and "__name__" in reads(statement.test):
                return statement
        return None

    def _parser(self, owner: cst.BaseExpression | None) -> tuple[cst.BaseStatement, str] | None:
        """Return the statement that makes the parser, and the parser's name there."""
        assert self._call is not None
        if owner is None:
            return None
        frame = self.source.frame(self._call)
        unit = unit_of(owner)
        if isinstance(owner, cst.Call):
            function = self.bindings.callee(owner)
            return self._made_in(function) if function is not None else None
        if not unit:
            return None
        for assignment in self.bindings.assignments(self.bindings.thing(frame, unit)):
            if not isinstance(assignment.value, cst.Call):
                continue
            if self.source.imported(assignment.value.func) == "argparse.ArgumentParser":
                return self.source.statement(assignment.node), unit
            function = self.bindings.callee(assignment.value)
            if function is not None:
                return self._made_in(function)
        return None

    def _made_in(self, function: cst.FunctionDef) -> tuple[cst.BaseStatement, str] | None:
        for call in self.source.calls:
            inside = self.source.frame(call) is function
            if inside and self.source.imported(call.func) == "argparse.ArgumentParser":
                statement = self.source.statement(call)
                units = list(writes(statement))
                return (statement, units[0]) if units else None
        return None

    def _convert(self, made: cst.BaseStatement, parser: str) -> None:
        # What adds arguments moves into a function: SambaFlow has one parser for each of its commands.
        assert self._call is not None
        block = list(self.source.block(made))
        parsing = self.source.statement(self._call)
        frame = self.source.frame(made)
        if isinstance(frame, cst.FunctionDef) and frame is not self.source.frame(self._call):
            self._convert_function(made, parser)
            return
        parent = self._parent(made)
        if parent is not None:
            self._convert_function(*parent)
            self.edits.remove(made, "command-line", "the parser is SambaFlow's")
            return
        known = {parser}
        taken: list[cst.BaseStatement] = []
        end = block.index(parsing) if parsing in block else len(block)
        for one in block[block.index(made) + 1 : end]:
            if isinstance(one, cst.FunctionDef | cst.ClassDef) or self.source.contains(
                one, self._call
            ):
                continue  # what only parses
            if known & set(reads(one)):
                taken.append(one)
                known |= set(writes(one))
        self._refuse_reserved(taken)
        name = self.names.fresh("add_arguments")
        if taken:
            body = textwrap.indent(statements_text(taken), "    ")
            text = f"def {name}({parser}):\n{body}\n"
            self.edits.replace(
                made, [text], "command-line", "the parser's arguments are added to SambaFlow's"
            )
        else:
            self.edits.remove(made, "command-line", "SambaFlow has a parser of its own")
        for one in taken:
            self.edits.remove(one, "command-line", "it is in the function that adds arguments")
        self._parse_by(name if taken else "")

    def _parent(self, made: cst.BaseStatement) -> tuple[cst.BaseStatement, str] | None:
        """Return where the parser is made of which another one takes all arguments."""
        for call in self.source.calls:
            parents = argument(call, "parents") if self.source.contains(made, call) else None
            if parents is None or not isinstance(parents.value, cst.List):
                continue
            for element in parents.value.elements:
                value = element.value
                function = self.bindings.callee(value) if isinstance(value, cst.Call) else None
                if function is not None and len(parents.value.elements) == 1:
                    return self._made_in(function)
        return None

    def _convert_function(self, made: cst.BaseStatement, parser: str) -> None:
        """Let a function that makes a parser take SambaFlow's, and add to that."""
        # It has the right shape already, but for the parser that it makes.
        assert self._call is not None
        function = self.source.frame(made)
        assert isinstance(function, cst.FunctionDef)
        if function.params.params:
            self.points.add(
                made,
                "command-line",
                "the function that makes the parser takes arguments",
                instead="let it take the parser alone, and give it to parse_app_args",
            )
            return
        self.edits.remove(made, "command-line", "the parser is SambaFlow's")
        parameter = cst.Parameters(params=[cst.Param(cst.Name(parser))])
        self.edits.parameters[function] = parameter
        for call in self.source.calls:
            if self.bindings.callee(call) is function:
                statement = self.source.statement(call)
                if not self.source.contains(statement, self._call):
                    self.edits.remove(statement, "command-line", "the parser is SambaFlow's")
        self._parse_by(function.name.value)

    def _parse_by(self, function: str) -> None:
        # What the program hands to parse_args, as a list for tests, stays the first argument.
        assert self._call is not None
        stated = f"common_parser_fn={function}" if function else ""
        known = attribute_name(self._call.func) == "parse_known_args"

        given = [self.source.code(one.value) for one in self._call.args]
        code = f"parse_app_args({', '.join([*given, *([stated] if stated else [])])})"
        self._parsing = f"({code}, [])" if known else code

        def parse(_: cst.BaseExpression) -> cst.BaseExpression:
            return cst.parse_expression(self._parsing)

        self.edits.rewrite(
            self._call,
            parse,
            "command-line",
            "SambaFlow's command line, with the program's arguments",
        )

    def _refuse_reserved(self, statements: list[cst.BaseStatement]) -> None:
        # The program's own meaning would win, and the framework could not be told any more.
        for statement in statements:
            for call in (one for one in self.source.calls if self.source.contains(statement, one)):
                name = attribute_name(call.func)
                words = [
                    self.source.code(one.value).strip("'\"").lstrip("-") for one in call.args[:2]
                ]
                if name in {"add_subparsers"} or _RESERVED & set(words):
                    self.points.add(
                        call,
                        "reserved-argument",
                        "SambaFlow's command line has this for something else",
                        instead="give the argument another name",
                    )
