"""What stands in SambaFlow's modules for names that are not here."""

from __future__ import annotations

from typing import Any, Final, Never

from samba_onnx.errors import UnsupportedSymbolError
from samba_onnx.facts.sambaflow_names import missing

HOME: Final = "samba_onnx.sambaflow"
"""The package that answers to it."""


def absent(module: str, name: str) -> AttributeError | UnsupportedSymbolError:
    """Return what to raise where a module of SambaFlow's has no such name.

    Args:
        module: Dotted name of the module, as programs import it.
        name: The name that was asked for.

    Returns:
        An error that says what to do, if SambaFlow has the name; else the usual one.
    """
    reason = missing(f"{module}.{name}")
    if reason is not None:
        return UnsupportedSymbolError(reason)
    return AttributeError(f"module {module!r} has no attribute {name!r}")


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
