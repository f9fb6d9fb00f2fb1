"""Judge a run of mutmut: ``python -m tests.mutation``, after ``mutmut run``, at the top of the checkout.

Every mutant that no test noticed must be listed, with a reason, in ``tests/mutants.toml``, and there
may be few of them.
"""

from __future__ import annotations

import collections
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

LIST: Final = Path(__file__).with_name("mutants.toml")
LARGEST_SHARE: Final = 0.05
"""Of the mutants that ran, the share that no test may notice."""

_LISTED: Final = re.compile(r"(?P<path>\S+) (?P<function>\S+): (?P<change>.+ → .*)")
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
        change: The lines before, an arrow, the lines after; as ``tests/mutants.toml`` writes them.
    """

    path: str
    function: str
    change: str

    def __str__(self) -> str:
        # As the list has it, so that what is printed can be put there. Literal strings of TOML take
        # backslashes and quotation marks as they are, but no apostrophe where only one encloses them.
        text = f"{self.path} {self.function}: {self.change}"
        quotes = "'''" if "'" in text else "'"
        return f"    {quotes}{text}{quotes},"


def listed(text: str) -> set[Mutant]:
    """Return the mutants of a list.

    Args:
        text: TOML of groups, each with the reason why no test notices its mutants, which are strings:
            path, function, a colon, the lines before, an arrow and the lines after.

    Raises:
        ValueError: A group has no reason, or a mutant is written in another way.
    """
    mutants = set()
    for group in tomllib.loads(text)["group"]:
        if not group["reason"].strip():
            raise ValueError(f"no reason is given why no test notices {group['mutants']}")
        for line in group["mutants"]:
            row = _LISTED.fullmatch(line)
            if row is None:
                raise ValueError(f"no mutant as `python -m tests.mutation` prints them: {line}")
            mutants.add(Mutant(row["path"], row["function"], row["change"]))
    return mutants


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
    known = listed(LIST.read_text(encoding="utf-8"))
    for mutant in sorted(unnoticed - known):
        print(f"not listed in tests/{LIST.name}:\n{mutant}")
    share = count["alive"] / max(count.total(), 1)
    print(
        f"{share:.1%} of {count.total()} mutants were not noticed; at most {LARGEST_SHARE:.0%} may be"
    )
    return int(bool(unnoticed - known) or share > LARGEST_SHARE)


if __name__ == "__main__":
    sys.exit(main())
