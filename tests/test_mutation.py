"""The list of mutants that no test notices is about code that exists, in the form that its judge reads."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.mutation import LIST, Mutant, change_of, listed

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]


def test_a_difference_is_one_line() -> None:
    lines = [
        "--- x.py",
        "+++ x.py",
        "@@ -1,3 +1,3 @@",
        " def f():",
        "-    a = 1",
        "-    b = 2",
        "+    a = 2",
    ]
    assert change_of(lines) == "a = 1 b = 2 → a = 2"


def test_what_the_judge_prints_is_what_it_reads() -> None:
    mutants = {
        Mutant("runtime/x.py", "f", "a < b → a <= b"),
        Mutant("runtime/x.py", "g", r"""'\n' + "it's" → '\n'"""),
        Mutant("passes/y.py", "h", "hop() → "),
    }
    lines = "\n".join(map(str, sorted(mutants)))
    assert listed(f"[[group]]\nreason = 'Equivalent.'\nmutants = [\n{lines}\n]") == mutants


@pytest.mark.parametrize(
    "group", ["reason = ' '\nmutants = []", "reason = 'Equivalent.'\nmutants = ['x.py: a → b']"]
)
def test_a_group_without_a_reason_or_a_function_is_refused(group: str) -> None:
    with pytest.raises(ValueError, match=r"no reason|no mutant"):
        listed(f"[[group]]\n{group}")


def test_every_file_that_is_changed_exists() -> None:
    assert all(list(ROOT.glob(pattern)) for pattern in SETTINGS["only_mutate"])


def test_the_listed_mutants_are_changes_of_the_code_as_it_is() -> None:
    squeezed = {}
    for mutant in listed(LIST.read_text(encoding="utf-8")):
        text = (ROOT / mutant.path).read_text(encoding="utf-8")
        squeezed.setdefault(mutant.path, re.sub(r"\s+", " ", text))
        before = re.sub(r"\s+", " ", mutant.change.partition(" → ")[0])
        assert before in squeezed[mutant.path], mutant
        assert f"def {mutant.function}(" in squeezed[mutant.path], mutant
