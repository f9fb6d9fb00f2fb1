"""What ``import sambaflow`` finds, and what it does not."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from samba_onnx.errors import UnsupportedSymbolError
from samba_onnx.facts.sambaflow_names import MISSING, MODULES, missing
from samba_onnx.sambaflow import install

ROOM = Path(__file__).parents[2] / "samba_onnx/sambaflow"
OURS = {
    "__main__",
    "children",
    "children.sambaflow",
    "command_line",
    "console",
    "device_results",
    "environments",
    "finder",
    "launching",
    "module_rows",
    "process_groups",
    "samba_functions",
    "stubs",
}
"""Modules of the room that carry no name of SambaFlow's."""


def test_every_file_of_the_room_is_in_the_table_once() -> None:
    paths = [path.relative_to(ROOM.parent).with_suffix("") for path in ROOM.rglob("*.py")]
    names = sorted(".".join(path.parts).removesuffix(".__init__") for path in paths)
    written = [row.code.removeprefix("samba_onnx.") for row in MODULES.values() if row.code]
    assert names == sorted([*written, *(f"sambaflow.{name}" for name in OURS)])


def test_every_module_stands_in_one_that_is_there() -> None:
    assert {name.rpartition(".")[0] for name in MODULES} <= {"", *MODULES}


@pytest.mark.usefixtures("sambaflow")
@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_has_two_names_and_one_state(name: str) -> None:
    module = importlib.import_module(name)
    assert module is importlib.import_module(f"samba_onnx.{name}")
    assert module.__spec__ is not None
    assert module.__spec__.name == (MODULES[name].code or f"samba_onnx.{name}")
    assert module is importlib.import_module(module.__spec__.name)
    assert module.__file__
    assert [public for public in module.__all__ if not hasattr(module, public)] == []


@pytest.mark.usefixtures("sambaflow")
@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_named_with_what_to_do(name: str) -> None:
    refused = pytest.raises(
        UnsupportedSymbolError, match=f"^{re.escape(name)}[.a-z]* is not part of "
    )
    if name in MODULES:
        if hasattr(importlib.import_module(name), "__path__"):
            with refused:
                importlib.import_module(f"{name}.deeper")
        return
    parent, _, last = name.rpartition(".")
    if parent not in MODULES:
        return  # an attribute of a class; its absence is an AttributeError like any other
    with refused:
        getattr(importlib.import_module(parent), last)(1, model=2)


@pytest.mark.usefixtures("sambaflow")
def test_what_programs_import_and_do_not_use_can_be_imported() -> None:
    queue = importlib.import_module("sambaflow.online_inference_service.sn_sqs_handler").Queue
    assert not isinstance("", queue)
    own = type("Own", (queue,), {})
    assert own.__name__ == "Own"
    with pytest.raises(UnsupportedSymbolError, match=r"sn_sqs_handler\.Queue is not part of"):
        own()


@pytest.mark.usefixtures("sambaflow")
def test_nothing_that_can_be_called_is_listed_as_missing() -> None:
    """Every placeholder of the room has a row, so that the documentation lists it."""
    for name in sorted(MODULES):
        module = importlib.import_module(name)
        for public in module.__all__:
            symbol = getattr(module, public)
            if type(symbol).__name__ == "_Refusing":
                assert symbol.__doc__ == missing(f"{symbol.__module__}.{public}")
                assert symbol.__doc__


@pytest.mark.usefixtures("sambaflow")
@pytest.mark.parametrize(
    "name", ["sambaflow.finder", "sambaflow.children", "sambaflow.argparser", "sambaflow.nonsense"]
)
def test_files_of_ours_are_no_modules_of_sambaflow(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
        importlib.import_module(name)


def another(folder: Path, text: str) -> None:
    (folder / "sambaflow").mkdir()
    (folder / "sambaflow/__init__.py").write_text(text)


def answers(folder: Path, code: str) -> list[str]:
    command = f"import sys; sys.path.insert(0, {str(folder)!r}); {code}"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    return done.stdout.decode().split()


def test_a_really_installed_one_wins_unless_told_otherwise(tmp_path: Path) -> None:
    another(tmp_path, "__version__ = 'theirs'")
    ask = "from samba_onnx.sambaflow import install; print(install()); "
    read = "import sambaflow; print(sambaflow.__version__); "
    assert answers(tmp_path, ask + read) == ["False", "theirs"]
    replaced = answers(tmp_path, f"{ask}{read}print(install(replace=True)); {read}")
    assert replaced[:3] == ["False", "theirs", "True"]
    assert replaced[3] != "theirs"


def test_a_folder_of_that_name_is_no_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sambaflow").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    assert install()


@pytest.mark.usefixtures("sambaflow")
def test_installing_twice_changes_nothing() -> None:
    before = list(sys.meta_path)
    assert install()
    assert sys.meta_path == before
