"""A tool is a folder: what holds for all of them, and that a new one needs nothing but its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from docs.generators.commands import FOLDER as PAGES
from docs.generators.commands import PAGE, with_options, with_table
from samba_onnx.report.documents import json_schema
from samba_onnx.tools import HelpGroup, Tool, find_tools
from tests.cli.conftest import SambaPort
from tests.test_house import ROOT, sources

TOOLS = find_tools()
FOLDER = ROOT / "samba_onnx" / "tools"


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_the_folder_has_the_name_of_the_command(tool: Tool) -> None:
    folder = tool.name.replace("-", "_")
    assert (FOLDER / folder / "__init__.py").is_file()
    assert (FOLDER / folder / f"{folder}.py").is_file()
    assert tool.question.endswith("?")


def test_places_are_stated_once() -> None:
    assert max(Counter(tool.place for tool in TOOLS.values()).values()) == 1


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
@pytest.mark.parametrize("option", ["--no-such-option", "--jso"])
def test_wrong_usage_is_one_line_that_names_the_command(
    samba_port: SambaPort, tool: Tool, option: str
) -> None:
    result = samba_port(tool.name, option)
    assert (result.status, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.startswith(f"samba-port {tool.name}: error: ")
    assert option in line


@pytest.mark.parametrize("name", ["no-such-command", "train_export"])
def test_what_is_no_command_is_refused(samba_port: SambaPort, name: str) -> None:
    result = samba_port(name)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("samba-port: error: ")


def test_a_schema_belongs_to_one_tool() -> None:
    names = Counter(name for tool in TOOLS.values() for name in tool.documents)
    assert set(names.values()) == {1}


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_documents_have_a_schema_that_is_published(tool: Tool) -> None:
    for name, document in tool.document_types().items():
        published = json.loads((ROOT / "docs" / f"{name}.schema.json").read_text())
        assert published["properties"].keys() == json_schema(document)["properties"].keys()


def test_the_page_of_commands_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "refresh it: python -m docs.generators.commands"
    in_a_child, _, _ = page.partition(") do so in a child process")
    named = in_a_child.rpartition("(")[2].replace("`", "").split(", ")
    assert set(named) == {tool.name for tool in TOOLS.values() if tool.isolated}
    assert {path.stem for path in PAGES.glob("*.md")} == set(TOOLS)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_the_page_of_a_command_has_its_options_and_an_example_with_its_answer(tool: Tool) -> None:
    page = (PAGES / f"{tool.name}.md").read_text(encoding="utf-8")
    assert page == with_options(page, tool), "refresh it: python -m docs.generators.commands"
    assert f"\n{tool.question}\n" in page
    assert page.count("```console\n$ ") == 1


def test_a_record_imports_nothing_but_the_finder() -> None:
    """Every command line imports all of them."""
    for name, text in sources().items():
        if name.startswith("samba_onnx/tools/") and name.endswith("/__init__.py"):
            imports = [line for line in text.splitlines() if line.startswith(("import", "from"))]
            own = imports == ["from samba_onnx.tools import HelpGroup, Tool"]
            assert own or name == "samba_onnx/tools/__init__.py", name


RECORD = '''"""``samba-port add-up``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool("add-up", question="How much is it in all?", group=HelpGroup.PORT, place=5)
'''
COMMAND = '''"""``samba-port add-up``."""

from __future__ import annotations

from typing import Annotated

import typer

from samba_onnx.cli.display import Display
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES
from samba_onnx.cli.options import JsonOption, QuietOption, VerboseOption
from samba_onnx.errors import UsageError


def add_up(
    numbers: Annotated[list[int], typer.Argument(help="What to add.")],
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Add whole numbers.

    Examples:
      samba-port add-up 1 2
      samba-port add-up 1 2 -q
      samba-port add-up 1 2 --json -
    """
    if len(numbers) == 1:
        raise UsageError("one number alone is no sum: give at least two")
    text = str(sum(numbers))
    Display(json, quiet, verbose).show(text, lambda rows: text, {"sum": sum(numbers)})
    return EXIT_YES if sum(numbers) else EXIT_NO
'''


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout to which nothing was added but the folder of a tool."""
    copy = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("samba_onnx", "docs", "tests/cli", "tests/tools"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    # Of the rest nothing is changed, and these are read only.
    for name in ("passes", "runtime", "pyproject.toml", "CONTRIBUTING.md", "setup.py"):
        (copy / name).symlink_to(ROOT / name)
    for path in (ROOT / "tests").iterdir():
        if not (copy / "tests" / path.name).exists() and path.name != "__pycache__":
            (copy / "tests" / path.name).symlink_to(path)
    folder = copy / "samba_onnx" / "tools" / "add_up"
    folder.mkdir()
    (folder / "__init__.py").write_text(RECORD, encoding="utf-8")
    (folder / "add_up.py").write_text(COMMAND, encoding="utf-8")
    done = python(copy, "-m", "docs.generators.commands")
    assert done.returncode == 0, done.stderr
    return copy


def python(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", *words],
        cwd=place, env={**os.environ, "PYTHONPATH": str(place)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_a_new_folder_is_a_command(extended: Path) -> None:
    listed = python(extended, "-m", "samba_onnx", "--help")
    names = [
        line.split()[0]
        for line in listed.stdout.partition(f"{HelpGroup.PORT}:")[2].splitlines()
        # Headings of groups are not indented.
        if line.startswith("  ")
    ]
    assert names == ["add-up", *TOOLS]
    for numbers, answer in (
        (("1", "2"), (0, "3\n", "")),
        (("0", "0"), (1, "0\n", "")),
        (("1",), (2, "", "samba-port add-up: error: one number alone is no sum: give at least two\n")),
    ):  # fmt: skip
        done = python(extended, "-m", "samba_onnx", "add-up", *numbers)
        assert (done.returncode, done.stdout, done.stderr) == answer


def test_a_new_folder_is_in_the_tests_of_all_commands(extended: Path) -> None:
    files = ("tests/tools/test_tools.py", "tests/cli/test_help.py")
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "add-up")
    done = python(extended, *words, *files)
    assert (done.returncode, "7 passed" in done.stdout) == (0, True), done.stdout[-3000:]


def test_a_new_folder_is_in_the_documentation_and_in_the_wheel(extended: Path) -> None:
    page = (extended / "docs" / "cli.md").read_text(encoding="utf-8")
    assert "| [`add-up`](commands/add-up.md) | How much is it in all? |\n" in page
    written = (extended / "docs" / "commands" / "add-up.md").read_text(encoding="utf-8")
    assert "samba-port add-up 1 2 -q" in written
    assert "` | What to add." in written
    installed = python(extended, "-c", "import setup; print(*setup.packages())")
    assert "samba_onnx.tools.add_up" in installed.stdout.split()
