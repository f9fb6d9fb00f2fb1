"""SambaFlow's modules and names: which of them are here, and why others are not."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

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
        "sambaflow.samba.functional",
        "sambaflow.samba.functional.stir",
        "sambaflow.samba.graph",
        "sambaflow.samba.nn",
        "sambaflow.samba.nn.parameter",
        "sambaflow.samba.optim",
        "sambaflow.samba.sambatensor",
        "sambaflow.samba.session",
        "sambaflow.samba.sn_private",
        "sambaflow.samba.utils",
        "sambaflow.samba.utils.argparser",
        "sambaflow.samba.utils.common",
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
