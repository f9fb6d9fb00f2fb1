"""Stubs say what modules have: each statement of each is held against the module as it is imported."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from samba_onnx.facts.sambaflow_names import MODULES, submodules
from samba_onnx.sambaflow.stubs import stub, stubs, write_stubs

ROOT = Path(__file__).parents[2]
NAMES = [name for name, row in MODULES.items() if row.code != f"samba_onnx.{name}"]

PROGRAM = """
import samba_onnx.sambaflow.samba as samba
from samba_onnx.sambaflow.models.unet import UNet
from samba_onnx.sambaflow.samba import SambaTensor
from samba_onnx.sambaflow.samba.utils.argparser import parse_app_args

reveal_type(samba.optim.SGD)
reveal_type(samba.utils.argparser.SambaConfig)
reveal_type(samba.session)
reveal_type(parse_app_args)
reveal_type(samba.conv2d)
tensor: SambaTensor = samba.ones(2)
class Own(UNet): ...
samba.utils.nonsense
"""


def imported(name: str) -> dict[str, object]:
    """What the statements of a stub bind, found as Python finds it; the last one wins."""
    values: dict[str, object] = {}
    for node in ast.walk(ast.parse(stub(name))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "typing":
            home = importlib.import_module(node.module)
            for alias in node.names:
                if alias.name == "*":
                    values |= {public: getattr(home, public) for public in home.__all__}
                else:
                    values[alias.asname or ""] = getattr(home, alias.name)
    return values


def refused(name: str) -> set[str]:
    """The names that a stub has without a type."""
    tree = ast.parse(stub(name))
    return {ast.unparse(node.target) for node in tree.body if isinstance(node, ast.AnnAssign)}


@pytest.mark.parametrize("name", NAMES)
def test_a_stub_has_the_names_of_its_module(name: str) -> None:
    module = importlib.import_module(f"samba_onnx.{name}")
    values = imported(name)
    assert {*module.__all__} - values.keys() == refused(name)
    for public, value in values.items():
        assert value is getattr(module, public), public
    # Whatever is not among them can only be asked for where the module looks it up, too.
    assert ("def __getattr__" in stub(name)) == bool(MODULES[name].others)


def test_packages_are_folders_and_every_module_has_a_stub(tmp_path: Path) -> None:
    write_stubs(tmp_path)
    files = {PurePosixPath(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.pyi")}
    assert files == stubs().keys()
    assert len(files) == len(NAMES)
    assert {path.parent for path in files if path.name == "__init__.pyi"} == {
        PurePosixPath(*name.split(".")) for name in NAMES if submodules(name)
    }


def test_a_checkout_has_no_stubs_that_are_out_of_date() -> None:
    """Of those that an editable build has written; git ignores them."""
    written = {path: ROOT / "samba_onnx" / path for path in stubs()}
    stale = [
        file
        for path, file in written.items()
        if file.exists() and file.read_text() != stubs()[path]
    ]
    assert stale == [], "python -m samba_onnx.sambaflow.stubs"


def test_mypy_knows_what_a_program_imports(tmp_path: Path) -> None:
    package = tmp_path / "samba_onnx"
    package.mkdir()
    for entry in (ROOT / "samba_onnx").iterdir():
        if entry.name != "sambaflow":
            (package / entry.name).symlink_to(entry)
    (package / "sambaflow").mkdir()
    for entry in (ROOT / "samba_onnx/sambaflow").glob("*.py"):
        (package / "sambaflow" / entry.name).symlink_to(entry)
    write_stubs(package)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "", "--follow-imports", "silent", "program.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    lines = [line.partition(": ")[2] for line in done.stdout.splitlines()]
    assert len(lines) == 7, done.stdout
    revealed = [line.partition('"')[2] for line in lines[:5]]
    assert revealed[0].endswith('-> samba_onnx.optim.sgd.SGD"')
    assert revealed[1].endswith('-> samba_onnx.sambaflow.argparser.SambaConfig"')
    assert revealed[2] == 'samba_onnx.sessions.session.SambaSession"'
    assert revealed[3].endswith('-> argparse.Namespace"')
    assert revealed[4] == 'Any"'
    assert lines[5] == 'error: Module has no attribute "nonsense"  [attr-defined]'
