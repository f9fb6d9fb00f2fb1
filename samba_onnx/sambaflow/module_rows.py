"""SambaFlow's modules, as the rows of ``samba_onnx.facts.sambaflow_names`` say: found, made and filled."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, Never

from samba_onnx.errors import UnsupportedSymbolError, UsageError
from samba_onnx.facts import sambaflow_names
from samba_onnx.facts.sambaflow_names import MISSING, MODULES, missing, submodules

HOME: Final = "samba_onnx.sambaflow"
"""The package that answers to SambaFlow's name."""
_PREFIX: Final = "samba_onnx."


class _Refusing(type):
    """The type of names that can be imported and subclassed, and whose calls are refused."""

    refusal: str

    def __call__(cls, *args: object, **kwargs: object) -> Never:
        raise UnsupportedSymbolError(cls.refusal)


def refused(name: str) -> Any:
    """Return what stands in a module of SambaFlow's for a function or class that is not here.

    Programs import names for a mode that they are not started in. Such a name can be imported, be a
    base class and be asked for by ``isinstance``; only calling it raises UnsupportedSymbolError.

    Args:
        name: Dotted name of a row of ``MISSING``, or of what such a row is about.

    Returns:
        A class without objects, by the name and with the reason as its documentation.
    """
    module, _, last = name.rpartition(".")
    reason = missing(name)
    # A class and no function: programs derive from some of these names, whatever they then call.
    return _Refusing(last, (), {"__module__": module, "__doc__": reason, "refusal": reason})


def absent(module: str, name: str) -> AttributeError | UnsupportedSymbolError:
    """Return what to raise where a module of SambaFlow's has no such name.

    Args:
        module: Dotted name of the module, as programs import it.
        name: The name that was asked for.

    Returns:
        An error that says what to do, if SambaFlow has the name; else the usual one.
    """
    dotted = f"{module}.{name}"
    # Not for what only stands below a missing name: Python asks modules for names of its own, such
    # as __path__, and takes no other error than this one for a no.
    if dotted in MISSING:
        return UnsupportedSymbolError(str(missing(dotted)))
    return AttributeError(f"module {module!r} has no attribute {name!r}")


class SambaFlowModule(ModuleType):
    """A module that a row of the table makes.

    Its names are there from its import on; the modules below it, and the other names of its row, from
    when they are first asked for.
    """

    def __getattr__(self, name: str) -> Any:
        """Return a module below this one, or another name of the row's."""
        public = self.__name__.removeprefix(_PREFIX)
        if f"{public}.{name}" in MODULES:
            return importlib.import_module(f"{self.__name__}.{name}")
        if not MODULES[public].others:
            raise absent(public, name)
        home = importlib.import_module(MODULES[public].others)
        holds = name in vars(home)
        # What the home only imports for itself is nobody's name.
        if holds and name not in home.__all__:
            raise absent(public, name)
        try:
            value = getattr(home, name)
        except AttributeError:
            raise absent(public, name) from None
        # What the home itself looks up each time, as a function of torch's, is not kept here either:
        # programs replace those.
        if name in vars(home):
            # Found without this method from now on: loops ask for the same names in every step.
            vars(self)[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        """Set a name, but for ``samba.session``, which is both an object and a module.

        The import system sets modules as attributes of their package; the vendor's package has both
        ``samba.session.run(...)`` and ``from sambaflow.samba.session import SambaSession``.
        """
        public = self.__name__.removeprefix(_PREFIX)
        both = f"{public}.{name}" in MODULES and name in _objects(public)
        if not both:
            super().__setattr__(name, value)
        elif not isinstance(value, ModuleType):
            raise UsageError(
                f"samba.{name} was set to a {type(value).__name__}; it is the one {name} of the "
                f"process, and {name}.reset() empties it"
            )

    def __dir__(self) -> list[str]:
        # The others stand for the names, which a listing of a module is made for.
        others = MODULES[self.__name__.removeprefix(_PREFIX)].others
        if not others:
            return sorted(vars(self))
        return sorted({*self.__all__, *dir(importlib.import_module(others))})


def public_names(name: str) -> list[str]:
    """Return ``__all__`` of a module that a row makes: its names and the modules below it.

    Args:
        name: Dotted name of the module, as programs import it.
    """
    return sorted({*_objects(name), *submodules(name)})


def _objects(name: str) -> set[str]:
    """Return the names of a row that are no modules below it, or not only."""
    row = MODULES[name]
    return {theirs for theirs, _, _ in row.sources()} | {*row.refused.split()}


class SameModule(Loader):
    """Gives a module a second name; it is one module, with one state."""

    def __init__(self, name: str) -> None:
        """Load a module by another name than its own.

        Args:
            name: The name under which it is found.
        """
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module itself; see ``importlib.abc.Loader``."""
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is; see ``importlib.abc.Loader``."""
        module.__spec__ = self._spec  # which the import of the second name has replaced


class _RowLoader(Loader):
    """Makes a module of its row."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return SambaFlowModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        public = module.__name__.removeprefix(_PREFIX)
        row = MODULES[public]
        module.__doc__ = f"``{public}``: {row.about}"
        values = {name: _found(home, ours) for name, home, ours in row.sources()}
        values |= {name: refused(f"{public}.{name}") for name in row.refused.split()}
        # Past __setattr__, which protects one of them.
        vars(module).update(values, __all__=public_names(public))
        if row.effect:
            _found(*row.effect.split(":"))()


def _found(home: str, name: str) -> Any:
    return getattr(importlib.import_module(home), name)


class RowFinder(MetaPathFinder):
    """Finds modules by their names alone."""

    def __init__(self, spec_of: Callable[[str], ModuleSpec | None]) -> None:
        """Find what a function finds.

        Args:
            spec_of: Returns how a module is loaded, by its dotted name; None for what is none of its modules.
        """
        self._spec_of = spec_of

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return how a module is loaded; see ``importlib.abc.MetaPathFinder``.

        Args:
            fullname: Dotted name of the module.
            path: Where the parent's modules are; not looked at.
            target: The module that is loaded again; not looked at.

        Returns:
            None for what others are to find.
        """
        return self._spec_of(fullname)


def _row_spec(name: str) -> ModuleSpec | None:
    """Return how a module below ``samba_onnx.sambaflow`` is loaded; None for no row, and one that is a file."""
    public = name.removeprefix(_PREFIX)
    if public == name or public not in MODULES or MODULES[public].code == name:
        return None
    if MODULES[public].code:
        return ModuleSpec(name, SameModule(MODULES[public].code))
    # The table is where such a module is written: programs ask modules for their file.
    table = sambaflow_names.__file__
    spec = ModuleSpec(name, _RowLoader(), origin=table, is_package=bool(submodules(public)))
    spec.has_location = True
    return spec


# In front of what looks in folders: where stubs for editors lie, it takes their folders for packages.
sys.meta_path.insert(0, RowFinder(_row_spec))
