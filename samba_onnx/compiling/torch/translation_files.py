"""Files of users that register translations of their own operators."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from samba_onnx.compiling.torch.factories import failed_at
from samba_onnx.errors import SambaError, UsageError
from samba_onnx.safety.files import printable


def load_translations(files: Sequence[str]) -> None:
    """Execute files that register translations, each once in a process.

    A file is a module by the name of its stem from then on: a program that imports it gets the same one,
    and nothing is registered twice.

    Args:
        files: Paths of Python files, with the suffix ``.py``.

    Raises:
        UsageError: There is no such file, it is no Python file, or another module has its name.
        ModelError: It failed.
    """
    for file in files:
        _load(Path(file))


def _load(path: Path) -> None:
    shown = printable(str(path))
    if path.suffix != ".py" or not path.stem.isidentifier() or not path.is_file():
        what = "is no file" if path.suffix == ".py" else "is no Python file"
        raise UsageError(
            f"--translations {shown} {what}: give the path of one that registers translations with "
            "samba_onnx.translations, as my_ops.py"
        )
    known = sys.modules.get(path.stem)
    if known is not None:
        if _is_same(getattr(known, "__file__", None), path):
            return
        raise UsageError(
            f"--translations {shown} has the name of another module, {path.stem}: give it another name"
        )
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None, "a file with the suffix .py has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Known before it runs, as Python's own import has it: what it imports may import it.
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (KeyboardInterrupt, SambaError):
        # A file that failed is no module, and may be mended and tried again.
        del sys.modules[path.stem]
        raise
    except BaseException as error:  # whatever the user's file raises
        del sys.modules[path.stem]
        raise failed_at(f"--translations {shown}", error) from error


def _is_same(file: str | None, path: Path) -> bool:
    return file is not None and os.path.exists(file) and os.path.samefile(file, path)
