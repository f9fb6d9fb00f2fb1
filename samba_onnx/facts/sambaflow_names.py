"""The names that SambaFlow's programs use: which modules are here, what is not and why."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

__all__ = ["MISSING", "MODULES", "ROOT", "known_names", "missing"]

ROOT: Final = "sambaflow"
"""What programs import."""

MODULES: Final = frozenset(
    {
        "sambaflow",
        "sambaflow.frameworks",
        "sambaflow.frameworks.quantized",
        "sambaflow.frameworks.quantized.quantized_linear",
        "sambaflow.logging",
        "sambaflow.mac",
        "sambaflow.mac.metadata",
        "sambaflow.models",
        "sambaflow.models.unet",
        "sambaflow.online_inference_service",
        "sambaflow.online_inference_service.sn_sqs_handler",
        "sambaflow.samba",
        "sambaflow.samba.argconf",
        "sambaflow.samba.argconf.args",
        "sambaflow.samba.directives",
        "sambaflow.samba.env",
        "sambaflow.samba.experiment_logger",
        "sambaflow.samba.functional",
        "sambaflow.samba.functional.arithmetic",
        "sambaflow.samba.functional.logical",
        "sambaflow.samba.functional.loss",
        "sambaflow.samba.functional.reduce",
        "sambaflow.samba.functional.stir",
        "sambaflow.samba.functional.tensorarithmetic",
        "sambaflow.samba.functional.tensorops",
        "sambaflow.samba.graph",
        "sambaflow.samba.lazy_param",
        "sambaflow.samba.materialize",
        "sambaflow.samba.nn",
        "sambaflow.samba.nn.parameter",
        "sambaflow.samba.optim",
        "sambaflow.samba.optim.adam",
        "sambaflow.samba.profiler",
        "sambaflow.samba.sambaloader",
        "sambaflow.samba.sambatensor",
        "sambaflow.samba.schema",
        "sambaflow.samba.schema.snconfig",
        "sambaflow.samba.session",
        "sambaflow.samba.sn_private",
        "sambaflow.samba.test",
        "sambaflow.samba.utils",
        "sambaflow.samba.utils.argparser",
        "sambaflow.samba.utils.benchmark_acc",
        "sambaflow.samba.utils.checkpoint",
        "sambaflow.samba.utils.common",
        "sambaflow.samba.utils.dataset",
        "sambaflow.samba.utils.dataset.mnist",
        "sambaflow.samba.utils.numeric",
        "sambaflow.samba.utils.pef_utils",
        "sambaflow.samba.utils.tensorboard_debug",
        "sambaflow.samba.utils.trainer",
        "sambaflow.samba.utils.trainer.samba",
        "sambaflow.samba.utils.trainer.torch",
        "sambaflow.samba.utils.utils",
        "sambaflow.sambacollections",
    }
)
"""Modules that can be imported; each is a file below ``samba_onnx.sambaflow``."""

MISSING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sambaflow.frameworks": "quantized modules need kernels whose rounding is not published; "
        "use torch.nn's modules",
        "sambaflow.models": "SambaFlow ships these models; put the model's source file beside the "
        "program and import that",
        "sambaflow.online_inference_service": "it is the client of a service that runs at the "
        "vendor's; call samba.session.run directly",
        "sambaflow.samba.SambaTensor.dsts": "SambaNova has not published what it holds; samba-port "
        "inspect shows which sections read a tensor",
        "sambaflow.samba.experiment_logger": "SambaNova has not published what it keeps; use logging "
        "or torch.utils.tensorboard",
        "sambaflow.samba.groupby": "SambaNova has not published what it computes; group with "
        "torch.topk, torch.sort and samba.functional.sn_gather",
        "sambaflow.samba.optim.Adagrad": "SambaNova has published neither its arguments nor its step; "
        "use AdamW",
        "sambaflow.samba.optim.SparseAdamW": "SambaNova has published its name, and not which elements "
        "its step leaves alone, nor whether weight decay reaches them; AdamW updates all",
        "sambaflow.samba.utils.create_mac_resource_report": "it is of the vendor's own "
        "installations; samba-port inspect shows what a PEF needs",
        "sambaflow.samba.utils.trainer.samba.train": "SambaNova has not published its arguments; write "
        "the loop with samba.session.run",
        "sambaflow.samba.utils.trainer.torch.train": "SambaNova has not published its arguments; write "
        "the loop with the model, its loss and torch.optim",
    }
)
"""Modules and names of SambaFlow's that cannot be used, each with the reason and what to do.

Those that published programs import are in their modules nevertheless, made by ``refused``: programs
import more than they use.
"""


def missing(name: str) -> str | None:
    """Return why a symbol of SambaFlow's is not here.

    Args:
        name: Dotted name, as ``sambaflow.models.unet``.

    Returns:
        A message that names the symbol; None if neither it nor what it is a part of is known to be
        missing.
    """
    parts = name.split(".")
    # From the whole name to its parents, so that a reason for one name wins over that for its
    # module.
    for end in range(len(parts), 0, -1):
        reason = MISSING.get(".".join(parts[:end]))
        if reason is not None:
            return f"{name} is not part of samba-onnx: {reason}"
    return None


@functools.cache
def known_names() -> Mapping[str, frozenset[str]]:
    """Return the public names of every module, by the module's dotted name.

    They are kept in a file, since whoever reads programs without running them, as ``samba-port lint``
    does, must not import torch to know them. ``python -m docs.generators.sambaflow_names`` writes it.

    Returns:
        Names by module; those of ``sambaflow.samba.session`` are members of the session, too, since
        ``samba.session`` is both.
    """
    table = json.loads(Path(__file__).with_name("sambaflow_names.json").read_text(encoding="utf-8"))
    return MappingProxyType({module: frozenset(names) for module, names in table.items()})
