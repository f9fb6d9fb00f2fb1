"""What an ONNX operator is: one row of facts per operator, which everybody asks.

    >>> facts("Add").kind
    <Kind.ELEMENTWISE: 'elementwise'>
    >>> facts("TopK").flops.steps
    'compares each element with the best so far, by bisection'

The rows stand in ``elementwise_rows``, ``tensor_rows`` and ``other_rows``; ``families`` has facts that
hold of a few operators only. They hold for every
version of an operator. An operator without a row is one of which nothing is known: it counts as not
elementwise, not exact, and never written in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from samba_onnx.errors import InternalError
from samba_onnx.facts.domains import qualified
from samba_onnx.facts.elementwise_rows import ELEMENTWISE_ROWS
from samba_onnx.facts.operator_facts import Facts, InPlace, Kind, Randomness
from samba_onnx.facts.other_rows import OTHER_ROWS
from samba_onnx.facts.tensor_rows import TENSOR_ROWS

__all__ = [
    "FACTS",
    "Facts",
    "InPlace",
    "Kind",
    "Randomness",
    "facts",
    "operations",
    "operators",
    "table",
]


def table(rows: Iterable[Facts]) -> Mapping[str, Facts]:
    """Return rows by the qualified name of their operator.

    Args:
        rows: Rows, at most one for each operator.

    Raises:
        InternalError: Two rows are about the same operator.
    """
    known: dict[str, Facts] = {}
    # A second row would win in silence, and which one depends on the order of the tables.
    for row in rows:
        if row.name in known:
            raise InternalError(f"two rows of facts are about {row.name}")
        known[row.name] = row
    return MappingProxyType(known)


FACTS: Final = table((*ELEMENTWISE_ROWS, *TENSOR_ROWS, *OTHER_ROWS))
"""Every row, by the operator's name; ``domain::Operator`` outside the default domain."""


def facts(op_type: str, domain: str = "") -> Facts | None:
    """Return the facts of an operator.

    Args:
        op_type: The operator.
        domain: Its domain, in either spelling of the default one.

    Returns:
        Its row; None where nothing is known of it.
    """
    return FACTS.get(qualified(domain, op_type))


def operations(name: str) -> str:
    """Say how many operations an operator takes, or why none are counted.

    Args:
        name: The operator, with its domain unless that is ONNX's default one.

    Returns:
        A phrase for a cell of a table.
    """
    row = FACTS.get(name)
    return "not counted: nothing is known of it" if row is None else row.flops.text


def operators(
    *,
    kind: Kind | None = None,
    foldable: bool | None = None,
    exact_in_bfloat16: bool | None = None,
    same_bits: bool | None = None,
    in_place: Iterable[InPlace] = tuple(InPlace),
    random: Iterable[Randomness] = tuple(Randomness),
) -> frozenset[str]:
    """Return the operators of the default domain of which all of the stated facts hold.

    Args:
        kind: What becomes of the elements; None for any.
        foldable: Whether it is folded; None for either.
        exact_in_bfloat16: Whether its results are bfloat16 numbers already; None for either.
        same_bits: Whether an element's place makes no difference; None for either.
        in_place: The ways of being written in place that count.
        random: The ways of being random that count.

    Returns:
        Operator types, to be asked with ``in`` for nodes of the default domain.
    """
    places, randomness = frozenset(in_place), frozenset(random)
    return frozenset(
        row.op_type
        for row in FACTS.values()
        # Callers ask with a node's operator alone, and an operator of another domain may have the
        # same name.
        if not row.domain
        and kind in (None, row.kind)
        and foldable in (None, row.foldable)
        and exact_in_bfloat16 in (None, row.exact_in_bfloat16)
        and same_bits in (None, row.same_bits)
        and row.in_place in places
        and row.random in randomness
    )
