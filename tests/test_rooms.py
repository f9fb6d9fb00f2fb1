"""The drawing of rooms in CONTRIBUTING.md shows the directions in which rooms import, and no others."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from pathlib import Path

import networkx
import pytest

from samba_onnx.facts.sambaflow_names import MODULES
from tests.test_house import ROOT, outline, sources

BASE = {"errors", "operator_names", "version", "facts", "safety", "program"}
"""What every room that stands above them may import."""

FINDER = {"samba_onnx.tools.Tool", "samba_onnx.tools.find_tools"}
"""What finds the tools, and imports none of them by name: everybody may ask it."""

CIRCLES = {
    frozenset(f"passes.planning.{name}" for name in ("partitioning", "placement", "sectioning")),
    frozenset({"runtime.mini_batches", "runtime.plans"}),
    frozenset(
        f"tensor.{name}"
        for name in ("as_value", "construction", "dispatch", "samba_tensor", "torch_methods")
    ),
    frozenset({"importing.control", "importing.interpreter"}),
    frozenset(
        f"report.{name}"
        for name in ("brief", "page.charts", "report", "terminal", "viewers.figures")
    ),
    frozenset({"tools.data_prep.encoding", "tools.data_prep.tokenizer_record"}),
    frozenset(f"tools.data_prep.{name}" for name in ("engines", "ray_engine", "worker_processes")),
}
"""Files that import each other, for the names of types or in functions; none do so as they are loaded."""

DRAWING = (ROOT / "CONTRIBUTING.md").read_text().split("```")[1]
TABLE = {
    room: set(re.findall(r"`([\w/]+)`", imports))
    for room, imports in re.findall(
        r"^\| `([\w/]+)` \| .+ \|([^|]*)\|$", (ROOT / "docs" / "rooms.md").read_text(), re.MULTILINE
    )
}
"""The rooms, each with those that it may import besides the base."""


def drawn() -> dict[str, int]:
    """Return the line of the drawing in which each room stands."""
    rows = DRAWING.splitlines()[1:]
    notes = rows[0].index("the data")  # the column in which every line says what a room is
    words = {
        word: number
        for number, row in enumerate(rows)
        for word in re.findall(r"[a-z_]+", row[:notes])
    }
    assert words.keys() == {top(room) for room in TABLE} | BASE
    return words


def room_of(module: str) -> str:
    """Return the innermost room of a module below ``samba_onnx``."""
    path = module.replace(".", "/")
    rooms = [room for room in TABLE | dict.fromkeys(BASE) if f"{path}/".startswith(f"{room}/")]
    return max(rooms, key=len, default="")


@functools.cache
def imported() -> dict[str, set[str]]:
    """Return what each room imports, in functions too."""
    edges: dict[str, set[str]] = defaultdict(set)
    for name in sources():
        module = Path(name).with_suffix("").as_posix().removeprefix("samba_onnx/")
        user = room_of(module.removesuffix("/__init__"))
        for imported_name in set(outline(name).imports) - FINDER:
            edges[user].add(room_of(imported_name.removeprefix("samba_onnx.")))
    # Its modules are made of rows, which name what they import.
    for row in MODULES.values():
        homes = [home for _, home, _ in row.sources()]
        edges["sambaflow"] |= {room_of(home.removeprefix("samba_onnx.")) for home in homes}
    edges.pop("", None)  # the package itself lists everything
    return {user: used - {"", user} for user, used in edges.items()}


def top(room: str) -> str:
    """Return the room of the drawing that a room belongs to."""
    return room.partition("/")[0]


@pytest.mark.parametrize("room", TABLE)
def test_a_room_imports_what_the_table_says(room: str) -> None:
    used = {top(other) for other in imported().get(room, set()) if top(other) != top(room)}
    assert used - BASE == TABLE[room]


def test_imports_go_down_in_the_drawing() -> None:
    lines = drawn()
    upwards = {
        (top(user), top(other))
        for user, used in imported().items()
        for other in used
        if top(user) != top(other) and lines[top(user)] >= lines[top(other)]
    }
    assert upwards == set()


def test_every_folder_is_a_room() -> None:
    folders = {Path(name).parent.as_posix().removeprefix("samba_onnx/") for name in sources()}
    assert {folder for folder in folders if not room_of(folder)} <= {"samba_onnx"}


def test_no_other_files_import_each_other() -> None:
    modules = {
        f"samba_onnx.{Path(name).with_suffix('').as_posix().removeprefix('samba_onnx/')}".replace(
            "/", "."
        ): name
        for name in sources()
        if not name.endswith("__init__.py")
    }
    graph = networkx.DiGraph()
    for module, name in modules.items():
        for imported_name in outline(name).imports:
            target = imported_name if imported_name in modules else imported_name.rpartition(".")[0]
            if target in modules:
                graph.add_edge(module, target)
    circles = {
        frozenset(module.removeprefix("samba_onnx.") for module in circle)
        for circle in networkx.strongly_connected_components(graph)
        if len(circle) > 1
    }
    assert circles == CIRCLES
