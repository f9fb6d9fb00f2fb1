"""The files of all inputs of a PEF, as commands take them that compare numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samba_onnx.errors import UsageError
from samba_onnx.pef import Pef
from samba_onnx.runtime.array_files import read_inputs
from samba_onnx.runtime.inputs import InputSpec
from samba_onnx.runtime.sized_graphs import SizedGraphs

__all__ = ["all_inputs"]


def all_inputs(pef: Pef, texts: Sequence[str] | None) -> dict[str, Any] | None:
    """Read input files.

    Args:
        pef: The open PEF whose inputs they are for.
        texts: As ``x=x.npy``, each.

    Returns:
        Arrays by the model's input names; None where there are no files, so that random ones are made.

    Raises:
        UsageError: A file does not fit, or an input has none.
    """
    if not texts:
        return None
    sizes = SizedGraphs(pef.manifest)
    names = pef.manifest.graphs[0].inputs
    wholes = {name: InputSpec(pef.symbol(name).whole()) for name in names}
    specs = sizes.specs() if sizes else wholes
    arrays = read_inputs(texts, specs, pef.manifest.fixed_inputs)
    missing = [f"{name} {spec}" for name, spec in specs.items() if name not in arrays]
    if missing:
        raise UsageError(f"no value for {'; '.join(missing)}: give all inputs, or none")
    return arrays
