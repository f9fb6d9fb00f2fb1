"""Comparisons with a module of one batch, of PEFs whose runs have several, mapped spatially."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from samba_onnx.errors import UsageError
from samba_onnx.pef import Pef
from samba_onnx.pef.manifest import Graph

__all__ = ["in_each_batch", "refuse_mini_batches", "run_name"]


def run_name(graph: Graph, condition: str) -> str:
    """Return what reports call a run on example inputs.

    Args:
        graph: The graph that runs.
        condition: What was replaced in the inputs; empty for nothing.
    """
    name = "the example inputs" + (f" ({condition})" if condition else "")
    batches = graph.spatial_batches
    return f"{name}, in each of {batches} mini-batches" if batches else name


def in_each_batch(pef: Pef, graph: Graph, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run of several mini-batches has where each of them has the same.

    Args:
        pef: Any; one that is not mapped spatially has no mini-batches.
        graph: Its graph.
        arrays: Inputs or outputs of one mini-batch, by name.

    Returns:
        The arrays as often as there are mini-batches, along the first axis; those that a run has once as
        they are.
    """
    symbols = {symbol.name: symbol for symbol in pef.manifest.symbols}
    times = graph.spatial_batches or 1
    return {
        name: array
        if symbols[name].batch_shape is None
        # A number has no axis along which it could be joined.
        else np.concatenate([np.atleast_1d(array)] * times)
        for name, array in arrays.items()
    }


def refuse_mini_batches(pef: Pef, graph: Graph) -> None:
    """Refuse gradients that are those of several mini-batches, each with a step behind it.

    Args:
        pef: A PEF that trains.
        graph: Its graph.

    Raises:
        UsageError: It is mapped spatially.
    """
    if graph.spatial_batches:
        raise UsageError(
            f"{pef.path} trains by {graph.spatial_batches} mini-batches in a run, and compare runs the module "
            "once: for inner values and gradients convert without --num-spatial-batches"
        )
