"""One folder for every command: what it does, what it says, and the record by which it is found.

A tool stands on the core and on ``samba_onnx.cli``, which parses and shows; none imports another, and
nothing below imports one. Here they are only found: the folders are the list. Help, isolation, messages,
schemas and pages of the documentation go through it, so that a new command is a new folder.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["HelpGroup", "Tool", "find_tools"]


class HelpGroup(StrEnum):
    """What commands are for, as help lists them."""

    PORT = "Port a model"
    CHECK = "Run it, and check the numbers"
    PROGRAMS = "SambaFlow programs"
    DEVICES = "Devices"


@dataclass(frozen=True)
class Tool:
    """What a tool says of itself: ``TOOL`` in the ``__init__.py`` of its folder, which imports nothing else."""

    name: str
    """The command as it is typed; its folder and its file are called so, with ``_`` for ``-``."""
    question: str
    """The question that it answers, in the table of ``docs/cli.md``."""
    group: HelpGroup
    """Under which heading it stands in help."""
    place: int
    """Where it stands among the others in help and tables: lower ones first."""
    isolated: bool = False
    """Whether it hands what others made to native code, and so runs in a child process."""
    documents: Mapping[str, str] = field(default_factory=dict)
    """The records that ``--json`` writes, ``module:class``, by the name of their schema."""
    commands: tuple[str, ...] = ()
    """Where it has commands of its own: their functions, in the order of help."""
    passes_on: bool = False
    """Whether the arguments behind its first are the command line of another program."""

    def function(self, name: str = "") -> Callable[..., Any]:
        """Return a function of the tool's file.

        Args:
            name: The function; empty for the one that is called as the tool is.
        """
        folder = self.name.replace("-", "_")
        module = importlib.import_module(f"{__name__}.{folder}.{folder}")
        function: Callable[..., Any] = getattr(module, name or folder)
        return function

    def document_types(self) -> dict[str, type]:
        """Return the records of ``documents`` by the name of their schema."""
        return {name: pkgutil.resolve_name(place) for name, place in self.documents.items()}


@functools.cache
def find_tools() -> Mapping[str, Tool]:
    """Return all tools by name, in the order of their places; it takes a few milliseconds."""
    folders = (folder.name for folder in pkgutil.iter_modules(__path__) if folder.ispkg)
    tools: list[Tool] = [importlib.import_module(f"{__name__}.{name}").TOOL for name in folders]
    return {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.place)}
