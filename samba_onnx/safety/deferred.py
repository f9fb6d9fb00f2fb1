"""What onnx_ir imports and commands hardly ever need, imported when it is first used.

sympy is a third of what ``samba-port analyze`` of a small model took (0.4 of 1.4 s of CPU), and onnx_ir
asks it only for arithmetic on names of dimensions. Only the command line does so: a process of somebody
else's has its imports as they are.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

__all__ = ["defer_imports"]

_USER: Final = "onnx_ir"
# The second one asks the first for functions as soon as it is imported.
_DEFERRED: Final = ("sympy", "onnx_ir._symbolic_shapes")


def defer_imports() -> None:
    """Let onnx_ir, if this process will import it, do without what it hardly ever needs until then."""
    if _USER not in sys.modules and not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Deferred(ModuleType):
    """Stands for a module that is imported when somebody asks for anything in it."""

    def __getattr__(self, name: str) -> Any:
        # The machinery of imports looks at these of every module that it hands out.
        if name.startswith("__"):
            raise AttributeError(name)
        with _absent(self):
            module = importlib.import_module(self.__name__)
        return getattr(module, name)


class _Finder(MetaPathFinder, Loader):
    """Wraps the import of onnx_ir, once."""

    _loader: Loader | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find onnx_ir where others find it, to be executed here."""
        if fullname != _USER:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to the machinery."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Import onnx_ir; what it imports meanwhile finds stand-ins, and others never do."""
        assert self._loader is not None
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        names = [name for name in _DEFERRED if name not in sys.modules]
        stand_ins = {name: _Deferred(name) for name in names}
        sys.modules.update(stand_ins)
        try:
            self._loader.exec_module(module)
        finally:
            for name, stand_in in stand_ins.items():
                if sys.modules.get(name) is stand_in:
                    del sys.modules[name]


@contextlib.contextmanager
def _absent(stand_in: _Deferred) -> Iterator[None]:
    """Take a stand-in away, if it is still there, so that an import finds the module."""
    if sys.modules.get(stand_in.__name__) is stand_in:
        del sys.modules[stand_in.__name__]
    yield
