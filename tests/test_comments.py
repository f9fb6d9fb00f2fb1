"""Comments stand where decisions are taken: how many each room has for a hundred lines of code.

`python -m tests.test_comments` prints the table. A floor of a room may only rise; the aim is four in each.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import pytest

from tests.test_house import sources

ENOUGH: Final = 4.0
"""Comments for a hundred lines of code, in a room that a reader finds reasons in."""

FLOORS: Final = {
    "passes": 0.0,
    "passes/planning": 4.0,
    "passes/rewrites": 4.0,
    "passes/sharding": 4.0,
    "passes/targets": 4.0,
    "passes/timing": 4.0,
    "runtime": 4.0,
    "samba_onnx/cli": 4.0,
    "samba_onnx/comparing": 4.0,
    "samba_onnx/compiling": 4.0,
    "samba_onnx/export": 4.0,
    "samba_onnx/facts": 4.0,
    "samba_onnx/functional": 4.0,
    "samba_onnx/importing": 4.0,
    "samba_onnx/loading": 4.0,
    "samba_onnx/optim": 4.0,
    "samba_onnx/pef": 4.0,
    "samba_onnx/program": 4.0,
    "samba_onnx/replicas": 4.0,
    "samba_onnx/report": 4.0,
    "samba_onnx/safety": 4.0,
    "samba_onnx/sambaflow": 4.0,
    "samba_onnx/sessions": 4.0,
    "samba_onnx/tensor": 4.0,
    "samba_onnx/tools": 4.0,
    "samba_onnx/utils": 4.0,
}
"""What rooms have already; none may have less."""

_FOR_MACHINES: Final = re.compile(r"#\s*(type: ignore|noqa|fmt:|pragma|mypy:|ruff:|!)")
_LAYOUT: Final = frozenset(
    {
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
        tokenize.ENCODING,
    }
)


@dataclass
class Count:
    """Lines of a room: those of code, without docstrings and blank ones, and comments."""

    code: int = 0
    comments: int = 0

    @property
    def density(self) -> float:
        """Comments for a hundred lines of code."""
        return 100 * self.comments / max(self.code, 1)


def count(text: str) -> Count:
    """Count the lines of a file. A reason behind what a checker is told counts as a comment."""
    documented = _docstrings(text)
    code, comments = set[int](), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            if not _FOR_MACHINES.match(token.string) or "#" in token.string[1:]:
                comments.add(line)
        elif token.type not in _LAYOUT and line not in documented:
            code.update(range(line, token.end[0] + 1))
    return Count(len(code), len(comments))


def _docstrings(text: str) -> set[int]:
    """Return the lines of strings that are statements: docstrings of modules, functions and fields."""
    return {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def room_of(path: str) -> str:
    """Return the room that a file is in; files beside rooms are nobody's."""
    first, *rest = path.split("/")
    if first == "runtime" or len(rest) < 2:
        return first
    return f"{first}/{rest[0]}"


@functools.cache
def rooms() -> dict[str, Count]:
    """Return the counts of all rooms."""
    found: dict[str, Count] = defaultdict(Count)
    for path, text in sources().items():
        counted, room = count(text), found[room_of(path)]
        room.code += counted.code
        room.comments += counted.comments
    return dict(found)


@pytest.mark.parametrize("room", FLOORS)
def test_a_room_says_why(room: str) -> None:
    assert FLOORS[room] <= ENOUGH
    assert rooms()[room].density >= FLOORS[room]


def test_what_is_counted() -> None:
    text = '''"""A docstring."""

import os  # noqa: F401
import re  # noqa: F401  # for its effects

LIMIT = 5
"""A docstring of a constant."""
# Why this limit:
# nobody needs more.
NAMES = [
    "a",  # the first
    """of
two lines""",
]
'''
    assert count(text) == Count(code=8, comments=4)
    assert room_of("passes/order.py") == "passes"
    assert room_of("passes/rewrites/foreign/trees.py") == "passes/rewrites"
    assert room_of("runtime/engine/lowerings/sums.py") == "runtime"


if __name__ == "__main__":
    for name, lines in sorted(rooms().items(), key=lambda item: item[1].density):
        print(
            f"{name:28} {lines.code:6,} lines of code {lines.comments:6,} comments {lines.density:5.1f}"
        )
