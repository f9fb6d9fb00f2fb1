"""Judge a run of mutmut: ``python -m tests.mutation``, after ``mutmut run``, at the top of the checkout.

Every mutant that no test noticed must be listed, with a reason, in ``tests/README.md``, and there
may be few of them.
"""

from __future__ import annotations

import collections
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

README: Final = Path(__file__).with_name("README.md")
LARGEST_SHARE: Final = 0.05
"""Of the mutants that ran, the share that no test may notice."""

_LISTED: Final = re.compile(r"^- `(?P<path>[^`]+)` `(?P<function>[^`]+)`: `(?P<change>[^`]+)`$")
_ROW: Final = "{:44} {:>8} {:>8} {:>8} {:>9}"
# How mutmut ends a mutant: exit codes, by what they mean here.
_CAUGHT_BY_TYPES: Final = 37
_UNNOTICED: Final = frozenset({0, 5, 33})


@dataclass(frozen=True, order=True)
class Mutant:
    """A change of the source that no test noticed.

    Attributes:
        path: File of the checkout.
        function: Name of the function that was changed, without that of its class.
        change: The lines before, an arrow, the lines after; as ``tests/README.md`` writes them.
    """

    path: str
    function: str
    change: str

    def __str__(self) -> str:
        return f"- `{self.path}` `{self.function}`: `{self.change}`"


def listed(text: str) -> set[Mutant]:
    """Return the mutants that a page lists.

    Args:
        text: Markdown with a line ``- `path` `function`: `before → after``` per mutant.
    """
    rows = (_LISTED.match(line) for line in text.splitlines())
    return {Mutant(row["path"], row["function"], row["change"]) for row in rows if row}


def change_of(difference: Iterable[str]) -> str:
    """Return a unified difference of a function as one line.

    Args:
        difference: Its lines, headers included.
    """
    sides: dict[str, list[str]] = {"-": [], "+": []}
    for line in difference:
        if line[:1] in sides and line[:3] not in ("---", "+++"):
            sides[line[0]].append(line[1:].strip())
    return f"{' '.join(sides['-'])} → {' '.join(sides['+'])}"


def _results() -> Iterator[tuple[str, str, int | None]]:
    """Yield the file, the name and the exit code of every mutant of the last run."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.utils.file_utils import walk_mutatable_files

    for path in walk_mutatable_files():
        data: Any = SourceFileMutationData(path=path)
        data.load()
        for name, code in data.exit_code_by_key.items():
            yield str(path), name, code


def _mutant(path: str, name: str) -> Mutant:
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.utils.format_utils import orig_function_and_class_names_from_key

    function, _ = orig_function_and_class_names_from_key(name)
    difference = get_diff_for_mutant(name, path=path)
    short = path.removeprefix("samba_onnx/") if "/passes/" in path or "/runtime/" in path else path
    return Mutant(short, function.rpartition(".")[-1], change_of(difference.splitlines()))


def _room(path: str) -> str:
    return path.rpartition("/")[0]


def main() -> int:
    """Print what became of the mutants of each room; return 1 if too many lived, or unlisted ones."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    unnoticed = set()
    for path, name, code in _results():
        if code is None:
            continue
        outcome = (
            "types" if code == _CAUGHT_BY_TYPES else "alive" if code in _UNNOTICED else "tests"
        )
        counts[_room(path)][outcome] += 1
        if outcome == "alive":
            unnoticed.add(_mutant(path, name))
    print(_ROW.format("room", "mutants", "by types", "by tests", "unnoticed"))
    for room, count in (
        *sorted(counts.items()),
        ("all", sum(counts.values(), collections.Counter())),
    ):
        figures = (count.total(), count["types"], count["tests"], count["alive"])
        print(_ROW.format(room, *figures))
    return _verdict(sum(counts.values(), collections.Counter()), unnoticed)


def _verdict(count: collections.Counter[str], unnoticed: set[Mutant]) -> int:
    known = listed(README.read_text(encoding="utf-8"))
    for mutant in sorted(unnoticed - known):
        print(f"not listed in tests/README.md:\n{mutant}")
    share = count["alive"] / max(count.total(), 1)
    print(
        f"{share:.1%} of {count.total()} mutants were not noticed; at most {LARGEST_SHARE:.0%} may be"
    )
    return int(bool(unnoticed - known) or share > LARGEST_SHARE)


if __name__ == "__main__":
    sys.exit(main())
