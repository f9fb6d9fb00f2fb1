"""Port PyTorch and ONNX models to SambaNova's RDU.

Convert a model, see what falls back to the CPU and why, package the result as a PEF, and run it on
an emulator that accounts for every byte between host and RDU::

    import samba_onnx

    pef = samba_onnx.convert("model.onnx", "model.pef")
    with samba_onnx.Device(pef) as device:
        outputs = device.run({"x": x})
        print(device.ledger.totals())

It is also the ``samba`` of SambaFlow programs, ``import samba_onnx as samba``: the session that
compiles and runs modules, ``samba.session``, SambaTensors, what makes them, and every operator of
``samba_onnx.functional`` by its name, such as ``samba.add``.

Importing this package costs next to nothing: each name below loads its module on first use.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import TYPE_CHECKING, Any

from samba_onnx.errors import MissingLibraryError
from samba_onnx.operator_names import FUNCTIONAL
from samba_onnx.version import __version__

if TYPE_CHECKING:
    from samba_onnx import functional, graph, nn, optim, sambaflow, sambaloader, translations, utils
    from samba_onnx.comparing.verification import self_test, verify
    from samba_onnx.compiling.compiler import analyze, convert
    from samba_onnx.errors import SambaError
    from samba_onnx.functional import (
        SNType,
        addmm,
        sn_fma,
        sn_gather,
        sn_imm,
        sn_iteridx,
        sn_multinomial,
        sn_reduce,
        sn_scatter,
        sn_select,
        sn_zipmapreduce,
        triu_fill,
    )
    from samba_onnx.passes.targets import available_targets, load_target
    from samba_onnx.pef import Pef, load_pef
    from samba_onnx.report import Report
    from samba_onnx.runtime.device import Device
    from samba_onnx.runtime.isolated_device import IsolatedDevice
    from samba_onnx.sessions import SESSION as session  # noqa: N811  documented in lower case
    from samba_onnx.sessions import from_onnx
    from samba_onnx.tensor import (
        SambaParameter,
        SambaTensor,
        arange,
        empty,
        empty_like,
        from_named_dict,
        from_torch,
        from_torch_model_,
        from_torch_tensor,
        from_torch_tensor_,
        full,
        full_like,
        ones,
        ones_like,
        rand,
        rand_like,
        randint,
        randn,
        randn_like,
        set_seed,
        to_torch,
        zeros,
        zeros_like,
    )

__all__ = [
    "Device",
    "IsolatedDevice",
    "Pef",
    "Report",
    "SNType",
    "SambaError",
    "SambaParameter",
    "SambaTensor",
    "__version__",
    "addmm",
    "analyze",
    "arange",
    "available_targets",
    "convert",
    "empty",
    "empty_like",
    "from_named_dict",
    "from_onnx",
    "from_torch",
    "from_torch_model_",
    "from_torch_tensor",
    "from_torch_tensor_",
    "full",
    "full_like",
    "functional",
    "graph",
    "load_pef",
    "load_target",
    "nn",
    "ones",
    "ones_like",
    "optim",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "sambaflow",
    "sambaloader",
    "self_test",
    "session",
    "set_seed",
    "sn_fma",
    "sn_gather",
    "sn_imm",
    "sn_iteridx",
    "sn_multinomial",
    "sn_reduce",
    "sn_scatter",
    "sn_select",
    "sn_zipmapreduce",
    "to_torch",
    "translations",
    "triu_fill",
    "utils",
    "verify",
    "zeros",
    "zeros_like",
]
__all__ += [name for name in FUNCTIONAL if name not in __all__]
__all__.sort()

_CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if not os.path.isdir(os.path.join(__path__[0], "passes")) and os.path.isfile(
    os.path.join(_CHECKOUT, "passes", "__init__.py")
):
    # An sdist, or a checkout whose links to passes/ and runtime/ are plain text files.
    __path__.append(_CHECKOUT)

_MODULES = (
    "functional",
    "graph",
    "nn",
    "optim",
    "sambaflow",
    "sambaloader",
    "translations",
    "utils",
)

_HOMES = {
    "Device": "samba_onnx.runtime.device",
    "IsolatedDevice": "samba_onnx.runtime.isolated_device",
    "Pef": "samba_onnx.pef",
    "Report": "samba_onnx.report",
    "SambaError": "samba_onnx.errors",
    "analyze": "samba_onnx.compiling.compiler",
    "available_targets": "samba_onnx.passes.targets",
    "convert": "samba_onnx.compiling.compiler",
    "from_onnx": "samba_onnx.sessions",
    "load_pef": "samba_onnx.pef",
    "load_target": "samba_onnx.passes.targets",
    "self_test": "samba_onnx.comparing.verification",
    "verify": "samba_onnx.comparing.verification",
}
_HOMES |= dict.fromkeys(
    (
        "SambaParameter",
        "SambaTensor",
        "arange",
        "empty",
        "empty_like",
        "from_named_dict",
        "from_torch",
        "from_torch_model_",
        "from_torch_tensor",
        "from_torch_tensor_",
        "full",
        "full_like",
        "ones",
        "ones_like",
        "rand",
        "rand_like",
        "randint",
        "randn",
        "randn_like",
        "set_seed",
        "to_torch",
        "zeros",
        "zeros_like",
    ),
    "samba_onnx.tensor",
)
_HOMES |= dict.fromkeys(("SNType", *FUNCTIONAL), "samba_onnx.functional")


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name in _MODULES:
        return _imported(f"samba_onnx.{name}", name)
    if name == "session":
        value = _imported("samba_onnx.sessions", name).SESSION
    elif name in _HOMES:
        value = getattr(_imported(_HOMES[name], name), name)
    else:
        raise AttributeError(f"module 'samba_onnx' has no attribute {name!r}")
    # Found without this function from now on: loops ask for the same names in every step.
    globals()[name] = value
    return value


def _imported(module: str, name: str) -> Any:
    """Import the module that a public name needs; say which package is missing or too old for it."""
    try:
        return importlib.import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise MissingLibraryError(
                f"samba_onnx.{name} needs torch, which is not installed: install it with "
                "pip install 'samba-onnx[torch]'"
            ) from None
        from samba_onnx.version import outdated

        old = outdated()
        if old:
            raise ImportError(
                f"{'; '.join(old)}: upgrade with pip install --upgrade samba-onnx"
            ) from error
        raise


def __dir__() -> list[str]:
    return __all__


if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
    # Before the program makes its group: torchrun's store has what an earlier start left there.
    with contextlib.suppress(ImportError):  # without torch there is no group
        importlib.import_module("samba_onnx.replicas.starts").start_afresh()
