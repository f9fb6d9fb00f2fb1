"""The rules of the house that a machine can see: sizes, words, docstrings, and what product code uses.

Lists of exceptions here may only shrink: an entry that is no longer needed fails its test, so that
nobody finds room in it for something new.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from samba_onnx.program.kinds import SectionType

ROOT = Path(__file__).parent.parent
WORDS = ROOT / "docs" / "words.md"
ROOMS = ("samba_onnx", "passes", "runtime")

MOST_LINES = 400
LONG_FILES: frozenset[str] = frozenset()

MOST_GUIDE_LINES = 250
MOST_FUNCTION_LINES = 50
MOST_CLI_LINES = 1500
LONG_FUNCTIONS = {
    # Commands: their options with help texts are their signature.
    "samba_onnx/tools/analyze/analyze.py:analyze",
    "samba_onnx/tools/convert/convert.py:convert",
    "samba_onnx/tools/run/run.py:run",
    "samba_onnx/tools/train_export/train_export.py:train_export",
    "samba_onnx/tools/verify/verify.py:verify",
    # Functions whose arguments are documented one by one; most are SambaFlow's.
    "runtime/device.py:run",
    "samba_onnx/sessions/compiler.py:compile",
    "samba_onnx/sessions/session.py:run",
    "samba_onnx/utils/measuring.py:measure_performance",
    "samba_onnx/utils/tracing.py:trace_graph",
}

MOST_POSITIONAL = 6
BY_POSITION = {
    # Made in every run: names cost a microsecond.
    "runtime/requests.py:RunRequest",
}

SHARED_NAMES: frozenset[str] = frozenset()
"""Public classes whose name stands for two things still."""

MOST_FOLDERS = 2
"""Folders in which a file of one name may stand: a word that is a file should say which file."""

TELEGRAM = re.compile(r'\s+(\w+: |""")(Of|As of|Those|That|With what|Them)\b')
"""How a docstring begins that only somebody understands who has read the one before it."""


@functools.cache
def sources() -> dict[str, str]:
    """Return the product's source files by path, each once, not through links."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if not any(parent.is_symlink() for parent in path.relative_to(ROOT).parents)
        and not (ROOT / room / path.relative_to(ROOT / room).parts[0]).is_symlink()
    }


@dataclass(frozen=True)
class Outline:
    """What the tests of the house ask of a source file; its tree would stay in everybody's way."""

    functions: tuple[tuple[str, int], ...]
    """Each function, in whatever it is, with the lines behind its first."""
    public_classes: tuple[str, ...]
    """The public classes that stand in no other and in no function."""
    classes: tuple[str, ...]
    """All classes, in whatever they are."""
    imports: tuple[str, ...]
    """The names that it imports from the package, each with its module."""
    without_encoding: tuple[int, ...]
    """The lines that read or write text and leave the encoding to the system."""
    by_position: tuple[tuple[str, str], ...]
    """What it calls with many positional arguments, and the module that it is imported from, if any."""
    counted: tuple[str, ...]
    """The functions that do not take any number of arguments."""


@functools.cache
def outline(name: str) -> Outline:
    tree = ast.parse(sources()[name])
    nodes = list(ast.walk(tree))
    return Outline(
        functions=tuple(
            (node.name, (node.end_lineno or node.lineno) - node.lineno)
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        public_classes=tuple(
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        ),
        classes=tuple(node.name for node in nodes if isinstance(node, ast.ClassDef)),
        imports=tuple(
            f"{node.module}.{alias.name}"
            for node in nodes
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("samba_onnx.")
            for alias in node.names
        ),
        without_encoding=tuple(
            node.lineno for node in nodes if isinstance(node, ast.Call) and _lacks_encoding(node)
        ),
        by_position=_called_by_position(nodes),
        counted=tuple(
            node.name
            for node in nodes
            if isinstance(node, ast.FunctionDef) and not node.args.vararg
        ),
    )


def _called_by_position(nodes: list[ast.AST]) -> tuple[tuple[str, str], ...]:
    modules = {
        alias.asname or alias.name.partition(".")[0]: getattr(node, "module", alias.name)
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    calls = [
        ast.unparse(node.func)
        for node in nodes
        if isinstance(node, ast.Call) and len(node.args) > MOST_POSITIONAL
    ]
    return tuple((call, modules.get(call.partition(".")[0], "")) for call in calls)


def public_classes() -> dict[str, list[str]]:
    """Return the files that define each public class."""
    owners: dict[str, list[str]] = defaultdict(list)
    for name in sources():
        for public in outline(name).public_classes:
            owners[public].append(name)
    return owners


def test_files_are_short() -> None:
    long_files = {name for name, text in sources().items() if text.count("\n") > MOST_LINES}
    assert long_files == LONG_FILES


def test_functions_are_short() -> None:
    long_functions = {
        f"{name}:{function}"
        for name in sources()
        for function, lines in outline(name).functions
        if lines >= MOST_FUNCTION_LINES
    }
    assert long_functions == LONG_FUNCTIONS


def test_calls_say_what_their_arguments_are() -> None:
    """Seven values in a row are read by counting; functions that take any number have a list of their like."""
    ours = {
        "samba_onnx." + name.removeprefix("samba_onnx/").removesuffix(".py").replace("/", "."): {
            *outline(name).counted,
            *outline(name).classes,
        }
        for name in sources()
    }
    methods = {name for names in ours.values() for name in names} | {"cls"}
    calls = set()
    for module, name in zip(ours, sources(), strict=True):
        for call, home in outline(name).by_position:
            # An imported name is that of its module, a method may be of any class; others stand in the file.
            names = methods if "." in call else ours[module]
            if home:  # a package hands on what its modules define
                names = ours.get(home, methods if home.startswith("samba_onnx") else set())
            if call.rpartition(".")[2] in names | {"cls"}:
                calls.add(f"{name}:{call}")
    assert calls == BY_POSITION


def test_the_command_line_is_small() -> None:
    # Parsing, display, failures and isolation: whatever else a command does is a tool's, or the core's.
    lines = [text.count("\n") for name, text in sources().items() if "/cli/" in name]
    assert 0 < sum(lines) < MOST_CLI_LINES


def test_a_file_name_stands_in_two_folders_at_most() -> None:
    paths = [Path(name) for name in sources()]
    counts = Counter(path.stem for path in paths if not path.stem.startswith("__"))
    assert not {stem for stem, folders in counts.items() if folders > MOST_FOLDERS}


def test_no_public_class_name_stands_for_two_things() -> None:
    shared = {name: files for name, files in public_classes().items() if len(files) > 1}
    assert shared.keys() == SHARED_NAMES, shared


def test_docstrings_are_sentences() -> None:
    telegrams = [
        f"{name}:{number} {line.strip()}"
        for name, text in sources().items()
        for number, line in enumerate(text.splitlines(), 1)
        if TELEGRAM.match(line)
    ]
    assert telegrams == []


def test_no_mocks_in_the_product() -> None:
    assert [name for name, text in sources().items() if re.search(r"\bmock\b", text)] == []


# The glossary, docs/words.md


RECORD_ROOMS = (
    "samba_onnx/program/",
    "samba_onnx/pef/dimensions.py",
    "samba_onnx/pef/host_summary.py",
    "samba_onnx/pef/manifest.py",
    "samba_onnx/pef/original_files.py",
    "samba_onnx/pef/stage_records.py",
    "samba_onnx/pef/target_summary.py",
    "passes/planning/",
    "passes/timing/",
)
"""Where the words of a PEF are defined: each public class of these is in the glossary."""


@functools.cache
def glossary() -> dict[str, tuple[str, ...]]:
    """Return, by word, the names in the code that the glossary gives for it."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", WORDS.read_text(), re.MULTILINE)
    return {
        word: tuple(re.findall(r"`([\w.]+)`", code))
        for word, _, code in rows
        if word not in ("word", "---")
    }


def test_a_word_has_one_meaning() -> None:
    words = re.findall(r"^\| ([^|]+) \| [^|]+ \| `", WORDS.read_text(), re.MULTILINE)
    assert len(glossary()) > 30
    assert sorted(words) == sorted(set(words))
    assert list(glossary()) == sorted(glossary(), key=str.casefold)


@pytest.mark.parametrize("word", glossary())
def test_a_word_names_its_code(word: str) -> None:
    names = glossary()[word]
    assert names
    for name in names:
        module, _, attribute = f"samba_onnx.{name}".rpartition(".")
        try:
            assert getattr(importlib.import_module(module), attribute).__doc__ is not None
        except (ImportError, AttributeError):
            importlib.import_module(f"samba_onnx.{name}")  # a room or a module


def test_every_record_of_a_pef_has_a_word() -> None:
    named = {name.rpartition(".")[2] for names in glossary().values() for name in names}
    records = {
        name for name, files in public_classes().items() if files[0].startswith(RECORD_ROOMS)
    }
    assert records - named == set()


def test_a_class_of_the_glossary_is_given_with_its_only_place() -> None:
    owners = public_classes()
    for word, names in glossary().items():
        for name in names:
            module, _, attribute = name.rpartition(".")
            if attribute in owners and attribute not in SHARED_NAMES:
                assert any(module.replace(".", "/") in owner for owner in owners[attribute]), (
                    f"{word}: {name} is defined in {owners[attribute]}"
                )


def test_every_section_type_is_where_people_and_machines_look_for_it() -> None:
    row = re.search(r"^\| section type \| ([^|]+) \|", WORDS.read_text(), re.M)
    schema = json.loads((ROOT / "docs/report.schema.json").read_text())
    described = schema["$defs"]["SectionReport"]["properties"]["type"]["description"]
    assert row is not None
    for text in (row[1], described):
        assert set(re.findall(r"[A-Z]{3,}", text)) == {kind.value for kind in SectionType}


def test_contributing_is_read_in_one_go() -> None:
    assert (ROOT / "CONTRIBUTING.md").read_text().count("\n") < MOST_GUIDE_LINES


def test_guides_name_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## How to add a pass\n")[2]
    paths = set(re.findall(r"`([\w/]+/[\w./]*\w+\.(?:py|toml|md|json))`", text))
    paths -= {path for path in paths if path.endswith(("/x.py", "/test_x.py")) or "/NAME/" in path}
    assert len(paths) > 30
    missing = {path for path in paths if not (ROOT / path).exists()}
    assert {path for path in missing if not (ROOT / "runtime/engine" / path).exists()} == set()


def _lacks_encoding(call: ast.Call) -> bool:
    """Whether it reads or writes text and leaves the encoding to the system."""
    if any(keyword.arg == "encoding" for keyword in call.keywords):
        return False
    if isinstance(call.func, ast.Attribute):
        return call.func.attr == "read_text" or (
            call.func.attr == "write_text" and len(call.args) == 1
        )
    modes = {one.value for one in call.args if isinstance(one, ast.Constant)}
    return ast.unparse(call.func) == "open" and not modes & {"rb", "wb", "w+b", "ab", "xb"}


def test_text_states_its_encoding() -> None:
    """Windows would take another one than UTF-8."""
    places = [f"{name}:{number}" for name in sources() for number in outline(name).without_encoding]
    assert places == []
