"""Every import path and symbol of SambaFlow's resolves, in this process and in one of its own."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
from typing import Any

import pytest

from samba_onnx.errors import UnsupportedSymbolError
from samba_onnx.facts.sambaflow_names import MISSING, MODULES
from samba_onnx.sessions import SESSION
from tests.sambaflow.symbol_table import ABSENT_MEMBERS, MEMBERS, REFUSED, SYMBOLS

LINES = [
    f"from {module} import {name}" for module, names in SYMBOLS.items() for name in names.split()
]
"""What programs write, each symbol once."""

TRY_ALL = """
import sys
from samba_onnx.sambaflow import install

install()
for line in sys.stdin.read().splitlines():
    try:
        exec(line)
    except Exception as error:
        print(f"{line}: {error!r}")
import sambaflow.samba as samba
print(type(samba.session).__name__, isinstance(sys.modules["sambaflow.samba.session"], type(sys)))
"""


def resolved(path: str) -> Any:
    """What a program reaches by a dotted path, through the attributes of packages."""
    return functools.reduce(getattr, path.split(".")[1:], importlib.import_module("sambaflow"))


@pytest.mark.usefixtures("sambaflow")
@pytest.mark.parametrize("module", SYMBOLS)
def test_symbols_can_be_imported_here(module: str) -> None:
    found = importlib.import_module(module)
    assert sys.modules[module] is found
    assert [name for name in SYMBOLS[module].split() if not hasattr(found, name)] == []


def test_symbols_can_be_imported_in_a_process_of_their_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRY_ALL],
        input="\n".join(LINES),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["SambaSession True"]


@pytest.mark.usefixtures("sambaflow")
@pytest.mark.parametrize("path", MEMBERS)
def test_members_are_there(path: str) -> None:
    importlib.import_module("sambaflow.samba")
    owner = resolved(path)
    names = MEMBERS[path].split()
    assert [name for name in names if not hasattr(owner, name)] == []
    assert len(names) == len(set(names))


@pytest.mark.usefixtures("sambaflow")
@pytest.mark.parametrize("path", sorted({*REFUSED}))
def test_what_cannot_be_used_says_why_when_it_is_called(path: str) -> None:
    importlib.import_module(path.rpartition(".")[0])
    with pytest.raises(UnsupportedSymbolError, match=f"^{path} is not part of samba-onnx: .+"):
        resolved(path)(1, 2, name="x")


@pytest.mark.usefixtures("sambaflow")
@pytest.mark.parametrize("path", ABSENT_MEMBERS)
def test_members_that_are_not_there_are_listed_as_missing(path: str) -> None:
    importlib.import_module("sambaflow.samba")
    owner, _, name = path.rpartition(".")
    assert not hasattr(resolved(owner), name)
    assert path in MISSING


@pytest.mark.usefixtures("sambaflow")
def test_nothing_else_is_refused() -> None:
    # Each module is imported here: as an attribute of its package it is there only when something has imported it.
    refused = {
        f"{module}.{name}"
        for module, names in SYMBOLS.items()
        for name in names.split()
        if type(getattr(importlib.import_module(module), name)).__name__ == "_Refusing"
    }
    assert refused == set(REFUSED)


@pytest.mark.usefixtures("sambaflow")
def test_every_module_is_named_by_a_document_or_a_program() -> None:
    named = {*SYMBOLS, *(path.rpartition(".")[0] for path in SYMBOLS)}
    for module, names in SYMBOLS.items():
        named |= {f"{module}.{name}" for name in names.split()}
    packages = {parent for one in named for parent in (one.rpartition(".")[0],)}
    assert MODULES.keys() - named - packages == set()
    assert SESSION.dynamic_dims == {}
