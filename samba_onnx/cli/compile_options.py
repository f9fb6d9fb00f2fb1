"""The options of a compilation as parameters of commands, made from the fields that state them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

import typer

from samba_onnx.compiling.host_profiles import host_profile
from samba_onnx.compiling.option import CommandFlag, Option, option_of
from samba_onnx.compiling.options import CompileOptions, option_fields

__all__ = ["WHOLE", "flag_words", "read_options", "takes_options", "variables"]

_PARAMETER = "options"

WHOLE: set[str] = set()
"""Names of the commands that have an option's every flag or leave it out: files of settings are for them."""


def takes_options(
    *, only: Collection[str] | None = None, writes: bool = True, settings: bool = True
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command the options of a compilation in the place of its parameter ``options``.

    Args:
        only: Fields whose flags it has; all where None.
        writes: Whether it writes a PEF, about which some options are.
        settings: Whether what nobody states comes from a file of settings, or means something else.

    Returns:
        A decorator. The command is called with a ``CompileOptions`` that is checked.
    """
    fields = option_fields()
    stated = {
        name: option_of(field)
        for name, field in fields.items()
        if (only is None or name in only) and (writes or not option_of(field).writes)
    }

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        if settings:
            WHOLE.add(command.__name__)
        own = inspect.signature(command, eval_str=True).parameters
        parameters = [
            each
            for name, parameter in own.items()
            for each in (_parameters(stated) if name == _PARAMETER else [parameter])
        ]
        # Parameters without a default come first, whatever stands between them.
        keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]

        @functools.wraps(command)
        def called(**given: Any) -> int:
            rest = {name: given[name] for name in own if name != _PARAMETER}
            return command(**rest, **{_PARAMETER: read_options(stated, given)})

        # The parser reads what is written here; what functools kept would show it the original.
        del called.__wrapped__
        called.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in keyword}
        return called

    return decorate


def read_options(stated: Mapping[str, Option], given: Mapping[str, Any]) -> CompileOptions:
    """Return the options that flags state.

    Args:
        stated: Options by the names of their fields.
        given: What the parser read, by the names of parameters; flags of others are not looked at.

    Raises:
        UsageError: A text is malformed, or a value not legal.
    """
    keywords: dict[str, Any] = {}
    for name, each in stated.items():
        values = [given[flag.name] for flag in each.flags]
        # Left out, not set to None: the record's own default counts.
        if all(value is None for value in values) or not values:
            continue
        keywords[name] = each.read(*values) if each.read else values[0]
    # Only command lines know `measured`, the profile that this machine was calibrated with.
    if "host" in keywords:
        keywords["host"] = host_profile(keywords["host"])
    return CompileOptions.of(**keywords)


def _parameters(stated: Mapping[str, Option]) -> list[inspect.Parameter]:
    return [_parameter(flag, each) for each in stated.values() for flag in each.flags]


def _parameter(flag: CommandFlag, stated: Option) -> inspect.Parameter:
    """Return what the parser makes a flag of."""
    # Without a default, None must be a legal value: it says that nobody stated the option.
    kind = flag.kind if flag.default is not None else flag.kind | None
    declared = typer.Option(
        flag.spelled,
        metavar=flag.metavar,
        help=flag.help,
        min=stated.least if flag.least is None else flag.least,
        show_default=flag.shows_default,
        rich_help_panel=stated.panel,
        envvar=_variable(flag),
        show_envvar=False,
    )
    return inspect.Parameter(
        flag.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=flag.default,
        annotation=Annotated[kind, declared],
    )


def _variable(flag: CommandFlag) -> str:
    return f"SAMBA_PORT_{flag.name.upper()}"


def variables() -> frozenset[str]:
    """Return the environment variables that state options of a compilation."""
    stated = map(option_of, option_fields().values())
    return frozenset(_variable(flag) for each in stated for flag in each.flags)


def flag_words(options: CompileOptions, names: Collection[str]) -> list[str]:
    """Return the words of a command line that state options, for another process.

    Args:
        options: Options whose values are texts or truth values.
        names: The fields that are looked at.
    """
    stated, fields = options.texts(), option_fields()
    words = []
    for name in names:
        if name in stated:
            # The first flag takes every value; others are further ways to say the same.
            flag = option_of(fields[name]).flags[0]
            words += [flag.spelled] if flag.kind is bool else [flag.spelled, stated[name]]
    return words
