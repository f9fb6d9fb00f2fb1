"""Names of SambaFlow's: those that are there are left alone, the others are found before the program runs."""

from __future__ import annotations

import pytest

from docs.generators.sambaflow_names import FILE, names_table
from samba_onnx.facts.sambaflow_names import MISSING, MODULES, missing
from samba_onnx.tools.lint.linter import lint_files
from samba_onnx.tools.lint.source import SourceFile
from tests.sambaflow.symbol_table import SYMBOLS

RULES = {"missing-name", "unknown-name"}


def found(text: str) -> list[tuple[str, str]]:
    """Return rule and message of what is found about names."""
    source = SourceFile("program.py", text.encode())
    return [
        (finding.rule, finding.message) for finding in lint_files([source]) if finding.rule in RULES
    ]


@pytest.mark.parametrize("module", SYMBOLS)
def test_every_name_of_documents_and_programs_can_be_imported(module: str) -> None:
    lines = [f"from {module} import {name}\n" for name in SYMBOLS[module].split()]
    lines += [f"import {module}\nprint({module}.{name})\n" for name in SYMBOLS[module].split()]
    assert found("".join(lines)) == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_another_name_of_every_module_is_found(module: str) -> None:
    message = f"`{module}` has no `no_such_name`, here or in SambaFlow's documents"
    # Of a module that is missing as a whole nobody knows which names it has.
    expected = [] if missing(module) else [("unknown-name", message)]
    for text in (
        f"from {module} import no_such_name\n",
        f"import {module} as it\nkept = it.no_such_name\n",
        f"import {module}\nkept = {module}.no_such_name.more\n",
    ):
        assert found(text) == expected
    guarded = f"try:\n    from {module} import no_such_name\nexcept ImportError:\n    pass\n"
    assert found(guarded) == []


@pytest.mark.parametrize("name", sorted(MISSING))
def test_a_call_of_what_only_raises_is_found_and_an_import_is_not(name: str) -> None:
    home, _, last = name.rpartition(".")
    assert found(f"from {home} import {last}\n") == []
    ((rule, message),) = found(f"import sambaflow\nkept = {name}\n{name}(1)\n")
    assert rule == "missing-name"
    assert message == f"{name} is not part of samba-onnx: {MISSING[name]}"


def test_modules_that_are_not_there_are_found() -> None:
    assert found("import sambaflow.samba.nonsense\n")[0][0] == "unknown-name"
    assert found("import sambaflow.nonsense.samba as samba\n")[0][0] == "unknown-name"
    assert found("from sambaflow.samba.nonsense import it\n")[0][0] == "unknown-name"
    assert found("from sambaflow.samba import *\nfrom . import sambaflow\n") == []


def test_names_of_other_packages_and_members_of_objects_are_nobodys_business() -> None:
    text = (
        "import samba_onnx as samba\nimport sambaflow.samba as real\nimport torch\n"
        "samba.nothing()\ntorch.nothing()\nreal.session.run.nothing()\nreal.SambaTensor.nothing\n"
        "real.session.mine = 1\n"
    )
    assert found(text) == []


def test_the_table_is_up_to_date() -> None:
    assert FILE.read_text("utf-8") == names_table()
