"""The commands of ``samba-port``, put together."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import samba_onnx
from samba_onnx.cli.compile_options import WHOLE
from samba_onnx.cli.failures import EXIT_USAGE, answer_or_complain
from samba_onnx.cli.plain_help import PanelCommand, PanelGroup
from samba_onnx.compiling.settings_files import file_defaults
from samba_onnx.safety.deferred import defer_imports
from samba_onnx.tools import Tool, find_tools

COMPLETION_VARIABLE = "_SAMBA_PORT_COMPLETE"
"""Set by the shell when it asks how a command line may go on; the parser reads it."""

_HELP = {"-h", "--help"}
_PASSING_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""For a command whose last arguments are the command line of another program."""


def answer(arguments: Sequence[str]) -> int:
    """Run one command line in this process.

    Args:
        arguments: Without the program's name.

    Returns:
        The exit status; see :func:`samba_onnx.cli.main`.
    """
    defer_imports()
    if "-vv" not in arguments:
        warnings.simplefilter("ignore")  # of libraries, about themselves
    return run_command(arguments)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line, and leave signals and warnings of this process as they are.

    Args:
        arguments: Without the program's name.

    Returns:
        The exit status.
    """
    return answer_or_complain(lambda: _dispatch(arguments), arguments)


def _dispatch(arguments: Sequence[str]) -> int:
    command = typer.main.get_command(build_application(_markup(), "".join(arguments[:1])))
    if not arguments and COMPLETION_VARIABLE not in os.environ:
        # Help that nobody asked for is no answer, but says what is missing.
        with contextlib.redirect_stdout(sys.stderr):
            _call(command, ["--help"])
        return EXIT_USAGE
    return _call(command, arguments)


def _call(command: Any, arguments: Sequence[str]) -> int:
    """Parse and run; whatever goes wrong is raised."""
    # Not standalone: errors are raised, and become one line in one place.
    words = set(arguments) & WHOLE
    # Read only where it counts: what is wrong with it is no matter of other commands.
    defaults = file_defaults(Path.cwd()) if words and not set(arguments) & _HELP else {}
    status = command.main(
        args=list(arguments),
        prog_name="samba-port",
        standalone_mode=False,
        default_map=dict.fromkeys(words, defaults),
    )
    return status if isinstance(status, int) else 0


def _markup() -> Literal["rich"] | None:
    """Choose frames and colour for terminals; a pipe gets plain text, which is also cheaper."""
    return "rich" if sys.stdout is not None and sys.stdout.isatty() else None


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"samba-port {samba_onnx.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Port PyTorch and ONNX models to SambaNova's RDU: convert, see what falls back to the CPU and why, run.

    Examples:
      samba-port convert model.onnx
      samba-port run model.pef --random 0
      samba-port verify model.onnx model.pef
    """


def build_application(markup: Literal["rich"] | None = None, only: str = "") -> typer.Typer:
    """Return the application.

    Args:
        markup: How help looks: ``rich`` with frames, None as plain text.
        only: The command that is needed; the application has all where there is no such command.

    Returns:
        A typer application.
    """
    application = typer.Typer(
        name="samba-port",
        cls=PanelGroup,
        # One line for an error is written by `failures`; typer's frames would show a traceback.
        pretty_exceptions_enable=False,
        rich_markup_mode=markup,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    application.callback(help=_help(_options))(_options)
    tools = find_tools()  # whose options take longer to read than a small plan
    for tool in [tools[only]] if only in tools else tools.values():
        if tool.commands:
            application.add_typer(_group(tool, markup), rich_help_panel=tool.group)
        else:
            function = tool.function()
            settings = _PASSING_ON if tool.passes_on else None
            application.command(
                tool.name,
                cls=PanelCommand,
                help=_help(function),
                rich_help_panel=tool.group,
                context_settings=settings,
            )(function)
    return application


def _group(tool: Tool, markup: Literal["rich"] | None) -> typer.Typer:
    """Return a tool that has commands of its own, which are called as their functions are."""
    commands = typer.Typer(
        name=tool.name,
        cls=PanelGroup,
        add_completion=False,
        rich_markup_mode=markup,
        help=_help(tool.function("group")),
        no_args_is_help=True,
    )
    for name in tool.commands:
        function = tool.function(name)
        commands.command(name, cls=PanelCommand, help=_help(function))(function)
    return commands


def _help(function: Callable[..., object]) -> str:
    """Return the docstring with a mark that keeps the lines of its examples apart."""
    return inspect.cleandoc(function.__doc__ or "").replace("\nExamples:", "\n\b\nExamples:")
