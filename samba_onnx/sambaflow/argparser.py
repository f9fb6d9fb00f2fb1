"""``sambaflow.samba.utils.argparser``: the command line of SambaFlow programs."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from pydantic import BaseModel, ValidationError

from samba_onnx.compiling.sambaflow_arguments import Command
from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.command_line import (
    ParserFunction,
    complete,
    program_parser,
    without_program,
)
from samba_onnx.sambaflow.console import set_level
from samba_onnx.sessions import SESSION
from samba_onnx.sessions.yaml_files import read_mapping

__all__ = ["SambaConfig", "parse_app_args", "parse_yaml_to_args"]


def parse_app_args(
    argv: Sequence[str] | None = None,
    common_parser_fn: ParserFunction | None = None,
    compile_parser_fn: ParserFunction | None = None,
    run_parser_fn: ParserFunction | None = None,
    test_parser_fn: ParserFunction | None = None,
    dev_mode: bool = False,
) -> Namespace:
    """Parse the command line of a program: a sub-command with SambaFlow's arguments and its own.

    Each function is given an ``argparse`` parser and adds the program's arguments to it. They may
    define arguments that SambaFlow has, too: name, type and default are then the program's. The
    session keeps what was parsed, so that a program need not hand it to ``compile``
    (SambaFlow's compiler argument reference; the README files of its tutorials). With
    ``--data-parallel``, the process joins its group, unless it only compiles; programs look by
    ``torch.distributed.is_initialized`` whether it did.

    Args:
        argv: The command line, with or without the program's name; that of the process when None.
        common_parser_fn: Adds to every sub-command.
        compile_parser_fn: Adds to ``compile``.
        run_parser_fn: Adds to ``run``, and to ``test`` when that has no function of its own.
        test_parser_fn: Adds to ``test``.
        dev_mode: Whether the help shows experimental arguments; ``--debug`` does it, too.

    Returns:
        The sub-command as ``command``, and every argument of any sub-command by its name; those
        that the given one does not take have their defaults. ``pef_name`` is the name of the
        script where the command line has none.

    Raises:
        SystemExit: The command line is wrong, with code 2 after a message on stderr; or it asks
            for help, with code 0.
        UsageError: The process was launched together with others, and it is not known where they
            meet.
    """
    line = without_program(sys.argv[1:] if argv is None else argv)
    everywhere = _functions(common_parser_fn)
    parser: ArgumentParser = program_parser(
        {
            Command.COMPILE: (*everywhere, *_functions(compile_parser_fn)),
            Command.RUN: (*everywhere, *_functions(run_parser_fn)),
            Command.TEST: (*everywhere, *_functions(test_parser_fn or run_parser_fn)),
            Command.MEASURE_PERFORMANCE: everywhere,
            Command.MEASURE_SECTIONS: everywhere,
        },
        # Looked for in the line itself: the parser, and its help, depend on it.
        experimental=dev_mode or "--debug" in line,
    )
    return _taken(parser.parse_args(line))


def _taken(namespace: Namespace) -> Namespace:
    """Complete a command line, do what it asks of SambaFlow itself, and return it."""
    complete(namespace)
    if namespace.log_level or namespace.verbose:
        set_level(namespace.log_level or "debug")
    SESSION.set_command_line(namespace)
    joins = namespace.data_parallel is True and namespace.command != Command.COMPILE
    if joins and not dist.is_initialized():
        dist.init_process_group(backend="mpi")  # which sambaflow.samba has adapted
    return namespace


def _functions(function: ParserFunction | None) -> tuple[ParserFunction, ...]:
    return () if function is None else (function,)


def parse_yaml_to_args(yaml_path: str | os.PathLike[str], args: Namespace) -> Namespace:
    """Let a YAML file override what was parsed, as starters of SambaFlow do with ``--yaml-config``.

    Args:
        yaml_path: A file with one mapping; hyphens in its keys are underscores.
        args: What ``parse_app_args`` returned; it is changed.

    Returns:
        The same Namespace.

    Raises:
        UsageError: The file cannot be read, or is no mapping.
    """
    content = read_mapping(yaml_path, "give a file of 'argument: value' lines")
    for key, value in content.items():
        setattr(args, str(key).replace("-", "_"), value)
    SESSION.set_command_line(args)
    return args


class SambaConfig:
    """Checks what was parsed against a schema, such as ``SNConfig``."""

    def __init__(self, args: Namespace, schema: type[BaseModel]) -> None:
        """Take what to check.

        Args:
            args: What ``parse_app_args`` returned.
            schema: A pydantic model of the arguments that are known.
        """
        self._args = args
        self._schema = schema

    def get_all_params(self) -> dict[str, Any]:
        """Return every argument, those of the schema as it has them.

        Raises:
            UsageError: The schema refuses an argument.
        """
        arguments = vars(self._args)
        known = {name: arguments[name] for name in self._schema.model_fields if name in arguments}
        try:
            return arguments | self._schema.model_validate(known).model_dump()
        except ValidationError as error:
            raise UsageError(
                f"{self._schema.__name__} refuses the arguments: {error}; correct them"
            ) from None
