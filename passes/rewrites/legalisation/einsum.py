"""Einstein sums as what they are: sums over axes, and products of matrices.

Evidence: MatMul and Transpose are ``bmm``, ``matmul`` and ``transpose`` of the vendor's table and the model zoo, and
a batched product over named axes is one of these once the axes stand in order. Sums are rounded in the order of the
product's kernel, which onnxruntime uses for Einsum, too.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.bounds import refuse_large
from samba_onnx.passes.rewrites.legalisation.rules import legalises

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


@dataclass(frozen=True)
class _Term:
    """A value whose axes have labels, each once."""

    value: ir.Value
    labels: tuple[str, ...]
    sizes: dict[str, int]

    def size(self, labels: Iterable[str]) -> int:
        """Return the product of the sizes of some axes."""
        return math.prod(self.sizes[label] for label in labels)


@legalises(
    "Einsum",
    name="einsum",
    makes="Transpose, Reshape and MatMul for each pair of operands; ReduceSum for what only one has; Mul where nothing is summed",
    needs="static shapes; a label that is summed over has one size in all operands",
    numbers="within a few roundings of the sums",
)
def einsum(draft: Draft) -> ir.Value:
    """Write an Einsum."""
    terms, result = _parse(draft)
    # From left to right as listed: another order could save work only from three operands on.
    left = terms[0]
    for place, right in enumerate(terms[1:], start=2):
        # A label that neither a later operand nor the result has is summed over at once, which
        # keeps intermediate products small.
        later = {label for term in terms[place:] for label in term.labels}
        left = _product(draft, left, right, later | set(result))
    left = _summed(draft, left, set(result))
    # Checked at the end, when all that are left are known: a Transpose without the label could not
    # be written.
    missing = [label for label in result if label not in left.labels]
    if missing:
        raise CannotExpandError(f"its result has a label {missing[0]!r} that no operand has")
    return _ordered(draft, left, result)


def _parse(draft: Draft) -> tuple[list[_Term], tuple[str, ...]]:
    """Return the operands with labels for all their axes, and the labels of the result."""
    # Blanks mean nothing in an equation.
    equation = draft.text("equation", "").replace(" ", "")
    sides = equation.split("->")
    texts = sides[0].split(",")
    values = [draft.operand(place) for place in range(len(draft.node.inputs))]
    if len(sides) > 2 or len(texts) != len(values) or not all(map(_TERM.fullmatch, texts)):
        raise CannotExpandError(f"its equation {equation!r} does not fit its operands")
    ranks = [draft.rank(value) for value in values]
    # The ellipsis stands for as many axes as its operand has more than labels.
    free = [rank - len(text.replace("...", "")) for text, rank in zip(texts, ranks, strict=True)]
    if any(
        count < 0 or (count > 0 and "..." not in text)
        for count, text in zip(free, texts, strict=True)
    ):
        raise CannotExpandError(f"its equation {equation!r} does not fit the ranks of its operands")
    # Ellipses broadcast from the right, so that the widest gives the number of labels and narrower
    # ones have the last of these.
    widest = max(free)
    terms = [
        _diagonal(draft, value, _labels(text, count, widest))
        for value, text, count in zip(values, texts, free, strict=True)
    ]
    if len(sides) == 2:
        return terms, _labels(sides[1], widest if "..." in sides[1] else 0, widest)
    # Without an arrow, the result has the axes of the ellipsis first, then all labels that occur
    # once, in alphabetical order.
    letters = "".join(texts).replace(".", "")
    single = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
    return terms, (*_labels("...", widest, widest), *single)


def _labels(text: str, count: int, widest: int) -> tuple[str, ...]:
    """Return a label per axis; those of the ellipsis are numbers, counted from the right."""
    before, dots, after = text.partition("...")
    numbers = [str(number) for number in range(widest - count, widest)] if dots else []
    return (*before, *numbers, *after)


def _diagonal(draft: Draft, value: ir.Value, labels: tuple[str, ...]) -> _Term:
    """Return an operand with each label once: of two axes of one label the diagonal is taken."""
    shape = list(draft.shape(value))
    names = list(labels)
    while len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        first = names.index(twice)
        second = names.index(twice, first + 1)
        size = shape[first]
        if shape[second] != size:
            raise CannotExpandError(f"its label {twice!r} has two sizes")
        refuse_large(size)
        rest = [at for at in range(len(names)) if at not in (first, second)]
        # The axes of the label are merged to one of size * size, in which the diagonal is every
        # (size + 1)-th element: one Gather, whatever stands behind.
        value = draft.op("Transpose", value, perm=[first, second, *rest])
        others = [shape[at] for at in rest]
        value = draft.op("Reshape", value, draft.integers(size * size, *others))
        places = np.arange(size, dtype=np.int64) * (size + 1)
        value = draft.op("Gather", value, draft.constant(places), axis=0)
        names, shape = [twice, *(names[at] for at in rest)], [size, *others]
    return _Term(value, tuple(names), dict(zip(names, shape, strict=True)))


def _summed(draft: Draft, term: _Term, kept: set[str]) -> _Term:
    """Return a term summed over the labels that nothing else has."""
    axes = [at for at, label in enumerate(term.labels) if label not in kept]
    if not axes:
        return term
    value = draft.op("ReduceSum", term.value, draft.integers(*axes), keepdims=0)
    return _Term(value, tuple(label for label in term.labels if label in kept), term.sizes)


def _ordered(draft: Draft, term: _Term, labels: Sequence[str]) -> ir.Value:
    """Return a term's value with its axes in an order."""
    order = [term.labels.index(label) for label in labels]
    if order == list(range(len(order))):
        return term.value
    return draft.op("Transpose", term.value, perm=order)


def _product(draft: Draft, left: _Term, right: _Term, kept: set[str]) -> _Term:
    """Return the product of two terms, summed over what both have and nothing else needs."""
    # What only one operand has and nobody needs is summed before the product, which is smaller
    # without it.
    left = _summed(draft, left, kept | set(right.labels))
    right = _summed(draft, right, kept | set(left.labels))
    both = [label for label in left.labels if label in right.labels]
    batch = [label for label in both if label in kept]
    summed = [label for label in both if label not in kept]
    # MatMul contracts axes of one size only; an Einsum may broadcast a size of 1.
    for label in summed:
        if left.sizes[label] != right.sizes[label]:
            raise CannotExpandError(f"its label {label!r} is summed over and has two sizes")
    rows = [label for label in left.labels if label not in both]
    columns = [label for label in right.labels if label not in both]
    sizes = {**left.sizes, **right.sizes}
    # Batch axes of size 1 broadcast, in MatMul as in Einsum.
    sizes |= {label: max(left.sizes[label], right.sizes[label]) for label in batch}
    one = _matrix(draft, left, batch, rows, summed)
    two = _matrix(draft, right, batch, summed, columns)
    # Without a sum it is the outer product of a column and a row, which Mul broadcasts.
    value = draft.op("MatMul" if summed else "Mul", one, two)
    labels = (*batch, *rows, *columns)
    shape = [sizes[label] for label in labels]
    # With one label each, the product has its shape already.
    if len(rows) != 1 or len(columns) != 1:
        value = draft.op("Reshape", value, draft.integers(*shape))
    return _Term(value, labels, dict(zip(labels, shape, strict=True)))


def _matrix(
    draft: Draft, term: _Term, batch: list[str], first: list[str], second: list[str]
) -> ir.Value:
    """Return a term as matrices: batch axes, then all of the first labels, then all of the second."""
    value = _ordered(draft, term, list(itertools.chain(batch, first, second)))
    if len(first) == 1 and len(second) == 1:
        return value
    shape = [term.sizes[label] for label in batch]
    return draft.op("Reshape", value, draft.integers(*shape, term.size(first), term.size(second)))
