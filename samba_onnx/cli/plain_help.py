"""Help in a pipe has the panels that it has on a terminal, and neither says ``<bool>`` beside a flag."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand, TyperGroup


class _Untyped:
    """Shows the types of parameters but for those that every word has, or none."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            shown = getattr(parameter, "display_type_rich", None)
            if shown is not None and shown(ctx=ctx) in ("<bool>", "<str>"):
                # typer asks each parameter for it, and has no setting.
                vars(parameter)["display_type_rich"] = lambda ctx: None
        return parameters


class PanelCommand(_Untyped, TyperCommand):
    """A command whose plain help has its options by panel, in the order in which the command states them."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what stands behind the command's name: its arguments as they are called, without braces."""
        arguments = (p for p in self.params if p.param_type_name == "argument")
        return ["[OPTIONS]", *(p.metavar or str(p.name).upper() for p in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                name = "Arguments" if parameter.param_type_name == "argument" else "Options"
                panel = getattr(parameter, "rich_help_panel", None) or name
                rows = panels.setdefault(panel, [])
                rows.append((re.sub(r" <[\w\[\]]+>$", "", record[0]), record[1]))
        _write(formatter, panels)


class PanelGroup(_Untyped, TyperGroup):
    """A list of commands by group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            row = (name, command.get_short_help_str(limit=100))  # the first sentence in whole
            groups.setdefault(command.rich_help_panel or "Commands", []).append(row)
        _write(formatter, groups)


def _write(formatter: Any, panels: dict[str, list[tuple[str, str]]]) -> None:
    for panel, rows in panels.items():
        with formatter.section(panel):
            formatter.write_dl(rows)
