"""``sambaflow.samba``: the session, tensors, and every operator by its name.

All of ``samba_onnx`` that SambaFlow has is here by the same name, besides what only programs written
for SambaFlow use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import samba_onnx
from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.process_groups import adapt_process_groups
from samba_onnx.sambaflow.samba import (
    argconf,
    directives,
    env,
    experiment_logger,
    functional,
    graph,
    lazy_param,
    materialize,
    nn,
    optim,
    profiler,
    sambaloader,
    sambatensor,
    schema,
    sn_private,
    test,
    utils,
)
from samba_onnx.sambaflow.symbols import absent, refused
from samba_onnx.sessions import SESSION, SambaSession
from samba_onnx.tensor import from_torch_model_, to_torch

__all__ = [
    "argconf",
    "directives",
    "env",
    "experiment_logger",
    "from_torch_",
    "from_torch_model",
    "functional",
    "graph",
    "groupby",
    "is_internal",
    "lazy_param",
    "materialize",
    "nn",
    "optim",
    "patched_torch",
    "profiler",
    "sambaloader",
    "sambatensor",
    "schema",
    "session",
    "sn_private",
    "test",
    "to_torch_tensor",
    "utils",
]

from_torch_ = from_torch_model_
"""The older name of ``from_torch_model_``."""

from_torch_model = from_torch_model_
"""Another name of ``from_torch_model_``, which published texts use; it works in place, too."""

to_torch_tensor = to_torch
"""Another name of ``to_torch``."""

# On import: programs join their group before they do anything else with SambaFlow.
adapt_process_groups()

session: SambaSession
"""The session of this process."""


def is_internal() -> bool:
    """Return whether this is an installation of the vendor's own, which it never is."""
    return False


@contextmanager
def patched_torch() -> Iterator[None]:
    """Let functions of torch be those of ``samba.functional``, inside.

    Given a SambaTensor they are that everywhere, so the context changes nothing.
    """
    yield


groupby: Final = refused("sambaflow.samba.groupby")
"""Routes the tokens of a mixture of experts; calling it is refused."""


class _Samba(ModuleType):
    """A module whose ``session`` stays the object when the module of that name is imported.

    The import system sets modules as attributes of their package; the vendor's package has both
    ``samba.session.run(...)`` and ``from sambaflow.samba.session import SambaSession``.
    """

    @property
    def session(self) -> SambaSession:
        """The session of this process."""
        return SESSION

    @session.setter
    def session(self, value: object) -> None:
        if not isinstance(value, ModuleType):
            raise UsageError(
                f"samba.session was set to a {type(value).__name__}; it is the one session of the "
                "process, and session.reset() empties it"
            )


def __getattr__(name: str) -> Any:
    """Return what ``samba_onnx`` has under a name."""
    if name in samba_onnx.__all__:
        # Found without this function from now on: loops ask for the same names in every step.
        value = globals()[name] = getattr(samba_onnx, name)
        return value
    raise absent("sambaflow.samba", name)


def __dir__() -> list[str]:
    return sorted({*__all__, *samba_onnx.__all__})


# Only its class can give a module a property.
sys.modules[__name__].__class__ = _Samba
