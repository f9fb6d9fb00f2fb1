"""What commands answer, in the pages that show it: ``python -m docs.generators.samples [PAGE...]`` writes it anew.

A block ``console`` has commands behind ``$`` and below each what it says, in the order of the page and in one folder,
which begins empty; a block whose first line is a comment with a file's name is that file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
LEFT_OUT = "..."
"""A line for what is not shown of an answer: as many lines before and behind it are, as there were."""
UNLIKE = (
    # The last digits of a sum depend on the kernels that a CPU takes.
    re.compile(r"\b(within|at most) (0|\d[\d.]*(e-\d\d)?)(?![\d.])"),
    re.compile(r"\d(\.\d+)?e-\d\d"),
    re.compile(r"[\d.]+ (ns|µs|ms|s)(?= on this machine)"),
    re.compile(r"\b[0-9a-f]{16}…"),
)
"""What differs between machines, and is not compared."""


def pages() -> list[Path]:
    """Return the pages whose console blocks are run."""
    folders = (ROOT / "docs" / "tutorials", ROOT / "docs" / "commands")
    inside = [path for folder in folders for path in sorted(folder.glob("*.md"))]
    candidates = [
        ROOT / "README.md",
        *(ROOT / "docs" / name for name in ("read_a_report.md", "memory.md")),
        *inside,
    ]
    return [path for path in candidates if "```console\n" in path.read_text(encoding="utf-8")]


def answered(text: str, folder: Path) -> str:
    """Return the page with what its commands answer, run in their order.

    Args:
        text: The page; an answer that is right stays as it is, with figures that depend on the machine.
        folder: An empty folder, in which they run.
    """
    status = 0
    parts = []
    end = 0
    for found in FENCE.finditer(text):
        language, body = found.groups()
        name = FILE.match(body)
        if name:
            place = folder / name[1]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(body, encoding="utf-8")
        if language != "console":
            continue
        block = ""
        for command, shown in _commands(body):
            answer, status = _run(command, status, folder)
            block += command + _as_shown(answer, shown)
        parts += [text[end : found.start(2)], block]
        end = found.end(2)
    return "".join([*parts, text[end:]])


def _commands(body: str) -> list[tuple[str, list[str]]]:
    """Split a block into commands, as they are printed, and the lines below each."""
    commands: list[tuple[str, list[str]]] = []
    for is_command, lines in groupby(body.splitlines(), lambda line: line.startswith(("$ ", "> "))):
        for line in lines:
            if line.startswith("$ "):
                commands.append((line + "\n", []))
            elif is_command:
                commands[-1] = (commands[-1][0] + line + "\n", [])
            else:
                commands[-1][1].append(line)
    return commands


def _run(printed: str, status: int, folder: Path) -> tuple[list[str], int]:
    """Run a command behind one that ended with a status; return its lines and its own status."""
    command = "\n".join(line[2:] for line in printed.splitlines())
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    done = subprocess.run(
        ["bash", "-c", f"(exit {status})\n{command}"],
        cwd=folder, env={**os.environ, "PATH": os.pathsep.join(places), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False,
    )  # fmt: skip
    said = done.stdout.replace(str(folder), "/home/you")
    return [line.rstrip() for line in said.splitlines()], done.returncode


def _as_shown(answer: list[str], shown: list[str]) -> str:
    if LEFT_OUT in shown:
        first = shown.index(LEFT_OUT)
        last = len(answer) - (len(shown) - first - 1)
        answer = [*answer[:first], LEFT_OUT, *answer[last:]]
    lines = shown if _alike(answer) == _alike(shown) else answer
    return "".join(line + "\n" for line in lines)


def _alike(lines: list[str]) -> list[str]:
    """Return lines without what differs between machines, and the widths of columns with it."""
    text = "\n".join(lines)
    for pattern in UNLIKE:
        text = pattern.sub("≈", text)
    return [" ".join(line.split()) for line in text.split("\n")]


if __name__ == "__main__":
    for page in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        with tempfile.TemporaryDirectory() as place:
            written = answered(page.read_text(encoding="utf-8"), Path(place))
        page.write_text(written, encoding="utf-8")
