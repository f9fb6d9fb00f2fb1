"""SambaFlow's modules and names: which of them are here, and why others are not."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from samba_onnx.errors import UnsupportedSymbolError

ROOT: Final = "sambaflow"
"""What programs import."""

HOME: Final = "samba_onnx.sambaflow"
"""The package that answers to it."""

MODULES: Final = frozenset(
    {
        "sambaflow",
        "sambaflow.logging",
        "sambaflow.mac",
        "sambaflow.mac.metadata",
        "sambaflow.samba",
        "sambaflow.samba.argconf",
        "sambaflow.samba.argconf.args",
        "sambaflow.samba.directives",
        "sambaflow.samba.env",
        "sambaflow.samba.functional",
        "sambaflow.samba.functional.stir",
        "sambaflow.samba.graph",
        "sambaflow.samba.lazy_param",
        "sambaflow.samba.materialize",
        "sambaflow.samba.nn",
        "sambaflow.samba.nn.parameter",
        "sambaflow.samba.optim",
        "sambaflow.samba.profiler",
        "sambaflow.samba.sambaloader",
        "sambaflow.samba.sambatensor",
        "sambaflow.samba.session",
        "sambaflow.samba.sn_private",
        "sambaflow.samba.utils",
        "sambaflow.samba.utils.argparser",
        "sambaflow.samba.utils.benchmark_acc",
        "sambaflow.samba.utils.common",
        "sambaflow.samba.utils.numeric",
        "sambaflow.samba.utils.pef_utils",
        "sambaflow.samba.utils.utils",
        "sambaflow.sambacollections",
    }
)
"""Modules that can be imported; each is a file below this package."""

MISSING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sambaflow.frameworks": "quantized modules need kernels whose rounding is not published; "
        "use torch.nn's modules",
        "sambaflow.models": "SambaFlow ships these models; put the model's source file beside the "
        "program and import that",
        "sambaflow.online_inference_service": "it is the client of a service that runs at the "
        "vendor's; call samba.session.run directly",
        "sambaflow.samba.experiment_logger": "it writes to a store of the vendor's; use logging "
        "or torch.utils.tensorboard",
        "sambaflow.samba.optim.SparseAdamW": "SambaNova has not published its update rule; use AdamW",
        "sambaflow.samba.sambatensor.DimInfo": "programs are static; compile one for every size",
        "sambaflow.samba.schema": "it only checks settings; leave the check out",
        "sambaflow.samba.test": "SambaNova has not published what it compares; compare with "
        "samba.utils.assert_close",
        "sambaflow.samba.utils.checkpoint": "load the files into the module with "
        "load_state_dict, and call samba.session.to_rdu",
        "sambaflow.samba.utils.compile": "it is older than the session; call samba.session.compile",
        "sambaflow.samba.utils.create_mac_resource_report": "it is of the vendor's own "
        "installations; samba-port inspect shows what a PEF needs",
        "sambaflow.samba.utils.dataset": "read the data with torchvision or torch.utils.data",
        "sambaflow.samba.utils.tensorboard_debug": "compare tensors with samba.utils.assert_close",
        "sambaflow.samba.utils.trainer": "write the loop with samba.session.run",
        "sambaflow.samba.utils.weight_norm_": "normalise with "
        "torch.nn.utils.parametrizations.weight_norm before samba.from_torch_model_",
    }
)
"""Modules and names of SambaFlow's that are not here, each with the reason and what to do."""


def missing(name: str) -> str | None:
    """Return why a symbol of SambaFlow's is not here.

    Args:
        name: Dotted name, as ``sambaflow.models.unet``.

    Returns:
        A message that names the symbol; None if neither it nor what it is a part of is known to be
        missing.
    """
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        reason = MISSING.get(".".join(parts[:end]))
        if reason is not None:
            return f"{name} is not part of samba-onnx: {reason}"
    return None


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
