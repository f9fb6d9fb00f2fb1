"""Cuts the parts of a program for several RDUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.errors import UsageError
from samba_onnx.passes.rewrites.rewriting import static_shape
from samba_onnx.passes.sharding.cuts import Cut
from samba_onnx.passes.sharding.layouts import Sharding, even
from samba_onnx.passes.sharding.sharder import Sharder
from samba_onnx.passes.sharding.table import rule_of
from samba_onnx.program.dataflow import name_of
from samba_onnx.program.kinds import SymbolKind

__all__ = ["MODES", "MOST_RDUS", "ParallelOptions", "cut_inputs", "cut_part"]

MODES = ("batch", "weight")
"""``batch`` gives every RDU a part of the batch and all weights; ``weight`` cuts linear layers, heads of
attention and embeddings."""
MOST_RDUS = 16
"""RDUs of one node."""


@dataclass(frozen=True)
class ParallelOptions:
    """For how many RDUs a program is cut, and how."""

    mode: str
    rdus: int

    def __post_init__(self) -> None:
        """Check both.

        Raises:
            UsageError: The mode is unknown, or there are too few or too many RDUs.
        """
        if self.mode not in MODES:
            raise UsageError(f"tensor parallel is {self.mode!r}: expected {' or '.join(MODES)}")
        if not 2 <= self.rdus <= MOST_RDUS:
            raise UsageError(
                f"a program is to be cut for {self.rdus} RDUs: give a number from 2 to {MOST_RDUS}"
            )


def cut_inputs(
    model: ir.Model, cut: Cut, inputs: Sequence[str], regions: Mapping[str, str]
) -> None:
    """Cut the batch of what a run is given, in mode ``batch``.

    Args:
        model: The first part of a program.
        cut: Told how the inputs lie.
        inputs: Names of the values that a run is given.
        regions: Regions by name, where they are not the name itself.

    Raises:
        UsageError: The batch cannot be divided, or there is none.
    """
    shapes = {
        name_of(value): static_shape(value)
        for value in model.graph.inputs
        if name_of(value) in inputs
    }
    # The first input that has axes says what the batch is.
    batches = [shape[0] for shape in shapes.values() if shape]
    if not batches or batches[0] % cut.rdus:
        what = f"a batch of {batches[0]}" if batches else "a model whose inputs have no batch"
        raise UsageError(
            f"{what} cannot be divided between {cut.rdus} RDUs: give a batch that is a multiple of "
            f"{cut.rdus}, or --tensor-parallel weight"
        )
    for name, shape in shapes.items():
        # An input of another size, as a table of positions, is none of the batch: every RDU has all of it.
        if shape and shape[0] == batches[0]:
            split = even(0, batches[0], cut.rdus, cut.rdus)
            cut.regions.setdefault(regions.get(name, name), Sharding((split,)))


def cut_part(
    model: ir.Model,
    cut: Cut,
    residents: Mapping[str, SymbolKind],
    regions: Mapping[str, str],
) -> None:
    """Cut one part of a program, in place.

    Args:
        model: Legal, in topological order, with its shapes.
        cut: What is known of earlier parts and graphs; added to.
        residents: Values that stay on the device, with their kinds.
        regions: Regions by name, where they are not the name itself.
    """
    kinds = {name: kind.value for name, kind in residents.items() if kind is SymbolKind.WEIGHT}
    weights = kinds if cut.mode == "weight" else {}

    def region(name: str) -> str:
        return regions.get(name, name)

    sharder = Sharder(model, cut, weights, region)
    # A copy: rules insert nodes around the one that is visited.
    for node in list(model.graph):
        sharder.visit(node, rule_of(node))
    sharder.finish(lambda name: name in residents or name in regions)
