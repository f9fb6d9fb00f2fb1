"""One option of click, fire or typer, as the call that adds it to a parser of argparse."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.name_units import argument, unit_of
from samba_onnx.tools.adapt.source import ProgramFile

_KINDS: Final = {"int": "int", "float": "float", "str": "str", "click.INT": "int", "click.FLOAT": "float",
                 "click.STRING": "str"}  # fmt: skip
_SHOWN: Final = frozenset({"help", "show_default", "metavar", "rich_help_panel"})
"""What says only how help shows an option."""
_CLICK: Final = frozenset({"default", "type", "required", "is_flag"})


class RefusedOptionError(Exception):
    """An option that argparse has no like of."""

    def __init__(self, node: cst.CSTNode, why: str) -> None:
        super().__init__(why)
        self.node = node


@dataclass(frozen=True)
class OptionRow:
    """An option, by the name that the function knows it by."""

    name: str
    code: str
    """The arguments of ``add_argument``."""


def click_row(source: ProgramFile, call: cst.Call) -> OptionRow:
    """Return an option of ``click.option`` or ``click.argument``.

    Args:
        source: The program.
        call: The decorator's call.

    Raises:
        RefusedOptionError: It does what argparse does not.
    """
    words = [one.value.evaluated_value for one in call.args
             if one.keyword is None and isinstance(one.value, cst.SimpleString)]  # fmt: skip
    flags = [str(word) for word in words if str(word).startswith("-")]
    names = [str(word) for word in words if not str(word).startswith("-")]
    for one in call.args:
        if one.star or (one.keyword is None and not isinstance(one.value, cst.SimpleString)):
            raise RefusedOptionError(call, "nobody can say here what the option is called")
        if one.keyword is not None and one.keyword.value not in _CLICK | _SHOWN:
            raise RefusedOptionError(
                one, f"argparse knows no `{one.keyword.value}` as click has it"
            )
    help_text = _stated(source, call, "help")
    if source.imported(call.func) == "click.argument":
        if argument(call, "default") or argument(call, "required") or len(names) != 1:
            raise RefusedOptionError(call, "an argument without a name that may be left out")
        kind = _kind(source, call, None)
        return OptionRow(
            names[0].lower().replace("-", "_"),
            f'"{names[0].lower().replace("-", "_")}"{kind}{help_text}',
        )
    return _click_option(source, call, flags, names, help_text)


def _click_option(
    source: ProgramFile, call: cst.Call, flags: list[str], names: list[str], help_text: str
) -> OptionRow:
    long = [one for one in flags if one.startswith("--")]
    name = (
        names[0]
        if names
        else (long or flags)[0].lstrip("-").partition("/")[0].replace("-", "_").lower()
    )
    default = argument(call, "default")
    value = default.value if default is not None else None
    stated = (
        "".join(f', "{one}"' for one in sorted(flags, key=len, reverse=True))[2:]
        + f', dest="{name}"'
    )
    if any("/" in one for one in flags):
        first, _, second = flags[0].partition("/")
        if (
            len(flags) > 1
            or second.strip() != f"--no-{first[2:]}"
            or _word(value) not in {"True", "False", ""}
        ):
            raise RefusedOptionError(call, "a pair of flags that are not `--name/--no-name`")
        code = f'"{first}", dest="{name}", action=argparse.BooleanOptionalAction, default={_word(value) or "False"}'
        return OptionRow(name, code + help_text)
    flag = argument(call, "is_flag")
    if flag is not None:
        if _word(flag.value) != "True" or _word(value) not in {"False", ""}:
            raise RefusedOptionError(call, "a flag that is no plain switch")
        return OptionRow(name, f'{stated}, action="store_true"{help_text}')
    kind = _kind(source, call, value)
    needed = _stated(source, call, "required")
    return OptionRow(name, f"{stated}{kind}{_default(source, value, kind)}{needed}{help_text}")


def _word(value: cst.BaseExpression | None) -> str:
    return value.value if isinstance(value, cst.Name) else ("" if value is None else "?")


def _stated(source: ProgramFile, call: cst.Call, name: str) -> str:
    given = argument(call, name)
    if given is None:
        return ""
    code = source.code(given.value)
    # argparse looks for formats in its help.
    return f", {name}={code.replace('%', '%%') if name == 'help' else code}"


def _kind(source: ProgramFile, call: cst.Call, default: cst.BaseExpression | None) -> str:
    """Return the type of an option's value as code; by its default, where nothing states it."""
    given = argument(call, "type")
    if given is None:
        return _kind_of(call, default)
    value = given.value
    name = source.imported(value.func if isinstance(value, cst.Call) else value) or unit_of(value)
    if isinstance(value, cst.Call):
        if name == "click.Path" and argument(value, "path_type") is None:
            return ", type=str"
        if name == "click.Choice" and len(value.args) == 1:
            return f", choices={source.code(value.args[0].value)}"
        raise RefusedOptionError(given, "a type of option that argparse does not have")
    if name not in _KINDS:
        raise RefusedOptionError(given, "a type of option that argparse does not have")
    return f", type={_KINDS[name]}"


def _kind_of(node: cst.CSTNode, default: cst.BaseExpression | None) -> str:
    bare = default.expression if isinstance(default, cst.UnaryOperation) else default
    if bare is None or isinstance(bare, cst.BaseString) or _word(bare) == "None":
        return ", type=str"
    if isinstance(bare, cst.Integer):
        return ", type=int"
    if isinstance(bare, cst.Float):
        return ", type=float"
    raise RefusedOptionError(node, "nothing says of which type this option is")


def _default(source: ProgramFile, value: cst.BaseExpression | None, kind: str) -> str:
    if value is None or _word(value) == "None":
        return ""
    code = source.code(value)
    # click makes a number of the stated type of a default, too.
    whole = isinstance(value, cst.Integer) and kind == ", type=float"
    return f", default={f'float({code})' if whole else code}"


def fire_row(source: ProgramFile, parameter: cst.Param) -> OptionRow:
    """Return an option of a function that fire calls, whose value may be any literal.

    Args:
        source: The program.
        parameter: The function's parameter.
    """
    name = parameter.name.value
    flags = f'"--{name}"' + (f', "--{name.replace("_", "-")}"' if "_" in name else "")
    stated = (
        ", required=True"
        if parameter.default is None
        else f", default={source.code(parameter.default)}"
    )
    if parameter.default is not None and not _is_constant(parameter.default):
        raise RefusedOptionError(parameter, "the default of this option is no constant")
    # Without a value, an option of fire is True.
    if isinstance(parameter.default, cst.SimpleString) and _is_literal(parameter.default):
        # argparse reads defaults that are texts by the type, too: "1" would become a number.
        raise RefusedOptionError(parameter, "the default is a text that reads as something else")
    return OptionRow(
        name, f'{flags}, dest="{name}", type=option_value, nargs="?", const=True{stated}'
    )


def _is_literal(text: cst.SimpleString) -> bool:
    try:
        ast.literal_eval(str(text.evaluated_value))
    except (SyntaxError, ValueError):
        return False
    return True


def _is_constant(value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.UnaryOperation):
        value = value.expression
    if isinstance(value, cst.Tuple | cst.List):
        return all(_is_constant(element.value) for element in value.elements)
    return isinstance(value, cst.BaseNumber | cst.BaseString) or _word(value) in {
        "None",
        "True",
        "False",
    }


def typer_row(source: ProgramFile, parameter: cst.Param) -> OptionRow:
    """Return an option of a function that typer calls, by its annotation.

    Args:
        source: The program.
        parameter: The function's parameter.

    Raises:
        RefusedOptionError: It does what argparse does not.
    """
    name = parameter.name.value
    annotation = parameter.annotation.annotation if parameter.annotation is not None else None
    kind = source.code(annotation) if annotation is not None else "str"
    default, help_text = _typer_default(source, parameter)
    if default is not None and not _is_constant(default):
        raise RefusedOptionError(parameter, "the default of this option is no constant")
    flag = f'"--{name.replace("_", "-")}", dest="{name}"'
    if kind == "bool" and _word(default) in {"True", "False"}:
        return OptionRow(
            name,
            f"{flag}, action=argparse.BooleanOptionalAction, default={_word(default)}{help_text}",
        )
    if kind not in {"int", "float", "str"}:
        raise RefusedOptionError(parameter, "a type of option that argparse does not have")
    if default is None:
        stated = (
            f'"{name}", '
            if not isinstance(parameter.default, cst.Call)
            else f"{flag}, required=True, "
        )
        return OptionRow(name, f"{stated}type={kind}{help_text}")
    return OptionRow(
        name, f"{flag}, type={kind}{_default(source, default, f', type={kind}')}{help_text}"
    )


def _typer_default(
    source: ProgramFile, parameter: cst.Param
) -> tuple[cst.BaseExpression | None, str]:
    """Return what an option is where it is not given, None if it must be, and its help as code."""
    default = parameter.default
    help_text = ""
    name = source.imported(default.func) if isinstance(default, cst.Call) else ""
    if isinstance(default, cst.Call) and name in {"typer.Option", "typer.Argument"}:
        plain = [one for one in default.args if one.keyword is None]
        shown = {*_SHOWN, "default"}
        others = [one for one in default.args if one.keyword and one.keyword.value not in shown]
        if others or len(plain) > 1 or name == "typer.Argument":
            raise RefusedOptionError(
                parameter, "an option of typer with settings that argparse does not have"
            )
        help_text = _stated(source, default, "help")
        given = argument(default, "default", 0)
        default = given.value if given is not None else None
    return (None if isinstance(default, cst.Ellipsis) else default), help_text
