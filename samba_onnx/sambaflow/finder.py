"""How ``import sambaflow`` finds the modules of this package."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

from samba_onnx.errors import UnsupportedSymbolError
from samba_onnx.facts.sambaflow_names import MODULES, ROOT, missing
from samba_onnx.sambaflow.module_rows import HOME, RowFinder, SameModule


def _spec_of(name: str) -> ModuleSpec | None:
    """Return how a module of SambaFlow's is loaded; None for any other.

    Raises:
        UnsupportedSymbolError: SambaFlow has it, and samba-onnx does not.
        ModuleNotFoundError: Nobody has it. Other finders are not asked: they would find files
            of this package that are no modules of SambaFlow's.
    """
    if name != ROOT and not name.startswith(f"{ROOT}."):
        return None
    if name in MODULES:
        return ModuleSpec(name, SameModule(HOME + name.removeprefix(ROOT)))
    reason = missing(name)
    if reason is not None:
        raise UnsupportedSymbolError(reason)
    raise ModuleNotFoundError(
        f"No module named {name!r}: neither samba-onnx nor SambaFlow's documentation has it",
        name=name,
    )


_FINDER: Final = RowFinder(_spec_of)
CHILDREN: Final = str(Path(__file__).parent / "children")
"""The folder in which fresh interpreters find what calls ``install``."""
_PATH: Final = "PYTHONPATH"


def install(*, replace: bool = False, children: bool = False) -> bool:
    """Let ``import sambaflow`` find samba-onnx, in this process.

    To be called before ``sambaflow`` is imported. Calling it again changes nothing.

    Args:
        replace: Whether to take the place of a SambaFlow that is really installed; without it that
            one wins, and nothing is changed. Modules of it that were imported already are forgotten
            and imported anew.
        children: Whether processes that this one starts from now on find it, too: those of
            ``multiprocessing``, however they are started, and those that run ``sys.executable`` with
            this process' environment. ``PYTHONPATH`` and ``sys.path`` get a folder for it.

    Returns:
        Whether ``import sambaflow`` finds samba-onnx now.
    """
    if _FINDER not in sys.meta_path:
        if _is_installed() and not replace:
            return False
        # Otherwise a program would get some modules of a real SambaFlow and some of ours.
        for name in [name for name in sys.modules if name.partition(".")[0] == ROOT]:
            del sys.modules[name]
        # In front of what looks in folders, in one of which a real SambaFlow may lie.
        sys.meta_path.insert(0, _FINDER)
    if children:
        _install_in_children()
    return True


def _install_in_children() -> None:
    """Put the folder for fresh interpreters where they look for modules."""
    inherited = [entry for entry in os.environ.get(_PATH, "").split(os.pathsep) if entry]
    if CHILDREN not in inherited:
        os.environ[_PATH] = os.pathsep.join([CHILDREN, *inherited])
    if CHILDREN not in sys.path:  # which multiprocessing gives to the processes that it spawns
        sys.path.append(CHILDREN)


def _is_installed() -> bool:
    """Return whether there is another ``sambaflow``."""
    return ROOT in sys.modules or real_installation() is not None


def real_installation() -> str | None:
    """Return the file of a ``sambaflow`` that is really installed, or None without one.

    A mere folder of that name is none, and neither is what samba-onnx puts in its place.
    """
    spec = PathFinder.find_spec(ROOT, [entry for entry in sys.path if entry != CHILDREN])
    return None if spec is None else spec.origin
