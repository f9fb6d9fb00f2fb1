"""Why a node cannot run on the RDU."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class ReasonCode(enum.StrEnum):
    """Stable short names of reasons; reports group by them and machines match on them."""

    OPERATOR = "operator"
    """The target's table has no row for the operator."""
    DOMAIN = "domain"
    """The operator belongs to a custom domain."""
    VERSION = "version"
    """The table has the operator, but not this version of it."""
    DTYPE = "dtype"
    """An input or output has a data type that the row does not list."""
    UNKNOWN_TYPE = "unknown_type"
    """The data type of an input or output could not be inferred."""
    DYNAMIC_SHAPE = "dynamic_shape"
    """A dimension of an input or output is not known at compile time."""
    UNKNOWN_RANK = "unknown_rank"
    """Not even the number of dimensions is known."""
    ATTRIBUTE = "attribute"
    """An attribute has a value that the row excludes."""
    RANK = "rank"
    """A tensor has more or fewer dimensions than the row allows."""
    LIMIT = "limit"
    """Another documented limit of the row."""
    STATIC_INPUT = "static_input"
    """An operand that must be a compile-time constant is computed at run time."""
    CONTROL_FLOW = "control_flow"
    """The operator carries subgraphs; the RDU runs static graphs."""
    VALUE_KIND = "value_kind"
    """An input or output is no tensor: a sequence, an optional or a map."""
    EMPTY = "empty"
    """A tensor has no elements: there is nothing to run on the RDU."""
    ISLAND = "island"
    """The target could run it, but it computes a few integers for the CPU only."""
    CHEAPER = "cheaper"
    """The target could run it, but a run takes less time with it on the CPU, beside a node that must be there."""


OF_VALUES: Final = frozenset(
    {
        ReasonCode.DYNAMIC_SHAPE,
        ReasonCode.UNKNOWN_RANK,
        ReasonCode.UNKNOWN_TYPE,
        ReasonCode.VALUE_KIND,
    }
)
"""Reasons that nobody lifts by another operator table: what the values are has to change."""


@dataclass(frozen=True)
class Reason:
    """Why one node must run on the CPU."""

    code: ReasonCode
    message: str
    """One sentence that names the operator, what it has and what the target supports."""
    hint: str = ""
    """What the user can do, as ``--dim batch=1``; may be empty."""
    dtype: str = ""
    """The data type that is refused, as ``float64``, where that is the reason; nodes of one such type have one cause."""
