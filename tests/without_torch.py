"""Where torch is not installed: tests of what needs it are skipped, and what must not need it fails.

Which half is which is stated once, by the contract "no torch in converting and running ONNX" of
pyproject.toml: a missing package is an error where a module of that contract, or what such a module
imports, asks for it, and the reason to skip anywhere else. Where torch is installed, nothing of this applies.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import tomllib
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pytest

from samba_onnx.errors import MissingLibraryError

ROOT: Final = Path(__file__).parent.parent
CONTRACT: Final = "no torch in converting and running ONNX"
HAS_TORCH: Final = importlib.util.find_spec("torch") is not None

DATA_HALF: Final = "samba_onnx.tools.data_prep"
"""A tool that converts and runs nothing, and needs what the extra ``data`` installs."""

EXTRAS: Final = frozenset(
    {
        *("h5py", "jinja2", "psutil", "tokenizers", "torch", "transformers", "yaml"),
        *("expecttest", "onnxconverter_common", "onnxscript", "skl2onnx", "sklearn"),
    }
)
"""Import names of the packages that the extra ``test`` leaves out."""


@functools.cache
def onnx_half() -> tuple[frozenset[str], frozenset[str]]:
    """Return the modules and packages that need no torch, and the modules among them that load it on demand."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["name"] == CONTRACT)
    loading = {line.split(" -> ")[0] for line in contract["ignore_imports"]}
    return frozenset(contract["source_modules"]), frozenset(loading)


def reason_to_skip(error: BaseException | None, has_torch: bool = HAS_TORCH) -> str:
    """Return why a test cannot run here; empty where the error is one.

    Args:
        error: What the test, its setup or the import of its module raised.
        has_torch: Whether torch is installed.
    """
    if has_torch:
        return ""
    if isinstance(error, MissingLibraryError):
        return str(error)
    if not isinstance(error, ModuleNotFoundError):
        return ""
    package = str(error.name).partition(".")[0]
    if package not in EXTRAS or _is_onnx_half(_modules(error.__traceback__)):
        return ""
    return f"{package} is not installed"


def reason_to_leave_out(folder: Path) -> str:
    """Return why no test of a folder can run here; empty where some may.

    Args:
        folder: A folder of tests, or a file, which is never left out.
    """
    if not (folder / "conftest.py").is_file() or folder == ROOT / "tests":
        return ""
    try:
        importlib.import_module(".".join((*folder.relative_to(ROOT).parts, "conftest")))
    except (ModuleNotFoundError, MissingLibraryError) as error:
        reason = reason_to_skip(error)
        if not reason:
            raise
        return reason
    return ""


def _modules(traceback: TracebackType | None) -> list[str]:
    """Return the names of the modules that a traceback goes through, the innermost last."""
    names = []
    while traceback is not None:
        names.append(str(traceback.tb_frame.f_globals.get("__name__", "")))
        traceback = traceback.tb_next
    return names


def _is_onnx_half(names: Iterable[str]) -> bool:
    """Return whether the last module of ours among these must do without torch."""
    ours = [name for name in names if name.partition(".")[0] == "samba_onnx"]
    if not ours:
        return False
    modules, loading = onnx_half()
    parts = ours[-1].split(".")
    packages = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    needs_more = ours[-1] in loading or DATA_HALF in packages
    return not needs_more and not packages.isdisjoint(modules)


class OnnxHalfModule(pytest.Module):
    """A file of tests that is skipped as a whole if it cannot be imported without torch."""

    def collect(self) -> Iterable[Any]:
        """Collect the tests, or skip the file."""
        try:
            return super().collect()
        except self.CollectError as error:
            reason = reason_to_skip(error.__cause__)
            if not reason:
                raise
        pytest.skip(reason, allow_module_level=True)
