"""The pages of the commands: ``python -m docs.generators.commands`` writes their list and their tables of options anew.

The list stands in ``docs/cli.md``, the options of a command at the end of ``docs/commands/NAME.md``. What stands
above them is written by hand; a command without a page gets one that begins with the examples of its help.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer

from samba_onnx.cli.application import build_application
from samba_onnx.tools import Tool, find_tools

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "cli.md"
FOLDER = DOCS / "commands"

_HEAD = "| command | question that it answers |\n|---|---|\n"
_OPTIONS = "\n## Options\n"


def with_table(page: str) -> str:
    """Return the page with the table that the tools make; all else of it is written by hand.

    Args:
        page: Its text, in which the table ends at an empty line.
    """
    before, _, rest = page.partition(_HEAD)
    _, end, after = rest.partition("\n\n")
    rows = (
        f"| [`{tool.name}`](commands/{tool.name}.md) | {tool.question} |"
        for tool in find_tools().values()
    )
    return before + _HEAD + "\n".join(rows) + end + after


def with_options(page: str, tool: Tool) -> str:
    """Return the page of a command with its options.

    Args:
        page: Its text; all up to the heading of the options is kept.
        tool: The command.
    """
    command: Any = typer.main.get_command(build_application(None)).commands[tool.name]  # type: ignore[attr-defined]
    commands = [(tool.name, command)]
    commands += [
        (f"{tool.name} {name}", part) for name, part in getattr(command, "commands", {}).items()
    ]
    tables = "".join(_tables(name, part) for name, part in commands)
    return page.partition(_OPTIONS)[0] + _OPTIONS + tables


def new_page(tool: Tool) -> str:
    """Return the page of a command that has none: its question, and the examples of its help.

    Args:
        tool: The command.
    """
    examples = re.findall(r"^ *(samba-port .*)$", tool.function().__doc__ or "", re.MULTILINE)
    block = "\n".join(examples)
    shown = f"## Example\n\n```console\n$ {examples[0]}\n```\n"
    return f"# samba-port {tool.name}\n\n{tool.question}\n\n```sh\n{block}\n```\n\n{shown}"


def _tables(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    panels: dict[str, list[str]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and parameter.name != "help":
            is_argument = parameter.param_type_name == "argument"
            panel = getattr(parameter, "rich_help_panel", None) or (
                "Arguments" if is_argument else "Options"
            )
            spelled, text = (cell.replace("|", "\\|").replace("\n", " ") for cell in record)
            spelled = re.sub(
                r" <[\w\[\] ]+>$", "", spelled
            )  # a type without a name for what is meant
            panels.setdefault(panel, []).append(f"| `{spelled}` | {text} |\n")
    heading = f"\n### {name}\n" if " " in name else ""
    head = "\n| {} | |\n|---|---|\n"
    return heading + "".join(head.format(panel) + "".join(rows) for panel, rows in panels.items())


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for one in find_tools().values():
        place = FOLDER / f"{one.name}.md"
        written = place.read_text(encoding="utf-8") if place.exists() else new_page(one)
        place.write_text(with_options(written, one), encoding="utf-8")
