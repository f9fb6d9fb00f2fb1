"""The columns of the table of operators."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from samba_onnx.facts.domains import qualified
from samba_onnx.facts.flops import Work

__all__ = ["UNKNOWN_WORK", "Facts", "InPlace", "Kind", "Randomness", "rows"]


class Kind(enum.Enum):
    """What becomes of the elements of the operands."""

    ELEMENTWISE = "elementwise"
    """Each element of the result comes from the elements at its place, operands broadcast."""
    VIEW = "view"
    """The result is the first operand: the same elements in the same order, in another shape."""
    MOVE = "move"
    """The result consists of elements of the operands, selected, repeated, joined or reordered."""
    OVERWRITE = "overwrite"
    """The result is the first operand, some of its elements replaced."""
    CREATE = "create"
    """The result depends on shapes, attributes and small operands, not on tensors of data."""
    REDUCE = "reduce"
    """One operation takes all elements along some axes together."""
    COMBINE = "combine"
    """Each element comes from many: products, windows, normalisations, recurrences."""
    SEARCH = "search"
    """The result says where elements are, or in which order."""
    CONTROL = "control"
    """A body, which is a graph of its own, is chosen or repeated."""
    CONTAINER = "container"
    """Sequences and optionals are made or taken apart."""
    TEXT = "text"
    """Texts or encoded data are read."""


UNKNOWN_WORK: Final = frozenset({Kind.CONTROL, Kind.CONTAINER, Kind.TEXT})
"""Kinds of operators of which shapes do not say how much they do."""


class InPlace(enum.Enum):
    """Whether a result may lie where an operand lies.

    It is known of operators whose kernels in onnxruntime were read, and means the CPU's; of all
    others nothing was shown.
    """

    NEVER = "never"
    """Nothing was shown."""
    AFTERWARDS = "afterwards"
    """It is arithmetic that is fused with nothing but such arithmetic. Its result may lie where a
    value lies that it does not read itself, and that only such arithmetic reads before it."""
    OPERAND = "operand"
    """Like AFTERWARDS, and the kernel reads an element before it writes the one in its place: the result
    may also lie where one of two operands lies."""
    OVERWRITTEN = "overwritten"
    """The kernel copies the first operand, which is no copy where it lies in the same place, and
    writes into it."""


class Randomness(enum.Enum):
    """Whether two executions on the same operands may give different results."""

    NEVER = "never"
    TRAINING = "training"
    """Only in training mode."""
    ALWAYS = "always"


@dataclass(frozen=True)
class Facts:
    """What an operator is; no fact has a default, so that each row states all of them."""

    op_type: str
    domain: str
    """Empty for ONNX's default domain."""
    kind: Kind
    flops: Work
    """How many operations an execution takes, or why none."""
    foldable: bool
    """Whether it is computed at compile time where its operands are known: it is deterministic, and
    the same in numpy as in every runtime."""
    exact_in_bfloat16: bool
    """Whether floating-point results are bfloat16 numbers whenever the operands are, so that they
    need no rounding: elements are moved, selected or negated. With a reduction no scatter is."""
    same_bits: bool
    """Whether kernels give an element the same bits wherever it lies in a tensor: results are
    rounded as IEEE 754 says, not approximated by one formula in a vector and another behind it."""
    in_place: InPlace
    random: Randomness

    @property
    def name(self) -> str:
        """The operator, with its domain unless that is ONNX's default one."""
        return qualified(self.domain, self.op_type)


def rows(
    flops: Mapping[str, Work],
    *,
    kind: Kind,
    foldable: bool,
    exact_in_bfloat16: bool,
    same_bits: bool,
    in_place: InPlace,
    random: Randomness,
    domain: str = "",
) -> tuple[Facts, ...]:
    """Return rows of operators that have all facts but their work in common.

    Args:
        flops: The work of each operator by its name, or by several names between spaces.
        kind: See :class:`Facts`, like the arguments that follow.
        foldable: Whether all of them may be computed at conversion time.
        exact_in_bfloat16: Whether results of all of them need no rounding to bfloat16.
        same_bits: Whether kernels of all of them give the same bits wherever an element lies.
        in_place: Whether results of all of them may lie where an operand lies.
        random: Whether two executions of them may differ.
        domain: The domain of all operators; empty for ONNX's default one.

    Returns:
        One row per operator.
    """
    return tuple(
        Facts(
            op_type=op_type,
            domain=domain,
            kind=kind,
            flops=work,
            foldable=foldable,
            exact_in_bfloat16=exact_in_bfloat16,
            same_bits=same_bits,
            in_place=in_place,
            random=random,
        )
        # Several names in one key keep rows with the same facts on one line.
        for names, work in flops.items()
        for op_type in names.split()
    )
