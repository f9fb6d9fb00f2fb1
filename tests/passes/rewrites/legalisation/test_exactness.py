"""Which values of float64 fit into float32: by the numbers that they can be, worked out by hand."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.legalisation import exactness
from samba_onnx.passes.rewrites.legalisation.exactness import Exactness
from samba_onnx.program.bounds import Bounds
from tests.passes.rewrites.legalisation.legalising import prepared


def known(text: str) -> tuple[Exactness, dict[str, ir.Value]]:
    """Return what is known of a graph, and its values by name."""
    model = prepared(text)
    values = {value.name or "": value for node in model.graph for value in node.outputs}
    values |= dict(model.graph.initializers.items())
    values |= {value.name or "": value for value in model.graph.inputs}
    return Exactness(Bounds(by_type=True)), values


def graph(body: str, inputs: str = "float[4] x, float[4] z, bool[4] m, double[4] any") -> str:
    return f"""g ({inputs}) => (float[4] y)
<double half = {{0.5}}, double tenth = {{0.1}}, double most = {{3.5e38}}, double least = {{1e-40}}, double nought = {{0}}> {{
  a = Cast<to=11>(x)
  b = Cast<to=11>(z)
  n = Cast<to=11>(m)
  {body}
}}"""


@pytest.mark.parametrize(
    ("body", "exact"),
    [
        ("v = Abs(a)\n y = Cast<to=1>(v)", True),
        ("v = Abs(any)\n y = Cast<to=1>(v)", False),
        ("v = Floor(any)\n y = Cast<to=1>(v)", False),
        ("v = Max(a, half)\n y = Cast<to=1>(v)", True),
        ("v = Max(a, tenth)\n y = Cast<to=1>(v)", False),
        ("v = Where(m, a, b)\n y = Cast<to=1>(v)", True),
        ("v = Where(m, a, any)\n y = Cast<to=1>(v)", False),
        ("v = Add(a, b)\n y = Cast<to=1>(v)", False),
        ("v = Add(n, n)\n y = Cast<to=1>(v)", True),
        ("v = Add(n, half)\n y = Cast<to=1>(v)", False),
        ("f = Floor(a)\n v = Add(f, n)\n y = Cast<to=1>(v)", False),
        ("s = Sign(a)\n v = Mul(s, n)\n y = Cast<to=1>(v)", True),
        ("s = Max(n, nought)\n v = Sub(s, n)\n y = Cast<to=1>(v)", True),
        ("i = Cast<to=7>(n)\n v = Cast<to=11>(i)\n y = Cast<to=1>(v)", True),
        ("i = Cast<to=7>(a)\n v = Cast<to=11>(i)\n y = Cast<to=1>(v)", True),
        ("v = x.Abs(a)\n y = Cast<to=1>(v)", False),
        ("i = ArgMax<axis=0, keepdims=1>(x)\n v = Cast<to=11>(i)\n y = Cast<to=1>(v)", True),
    ],
)
def test_numbers_of_float32(body: str, exact: bool) -> None:
    proofs, values = known(graph(body))
    assert proofs.exact(values["v"]) is exact


def test_the_places_of_the_largest_are_no_numbers_of_the_operand() -> None:
    proofs, values = known(
        """g (float[4] x) => (float[2] y, int64[2] i) <int64[1] k = {2}> {
  a = Cast<to=11>(x)
  v, i = TopK(a, k)
  y = Cast<to=1>(v)
}"""
    )
    assert proofs.exact(values["v"])
    assert not proofs.exact(values["i"])


def test_constants_that_are_no_numbers_are_exact() -> None:
    proofs, _ = known(graph("v = Add(a, half)\n y = Cast<to=1>(v)"))
    for number, exact in ((np.nan, True), (np.inf, True), (0.1, False), (1e300, False)):
        value = ir.Value(name="c", const_value=ir.tensor(np.array([number])))
        value.dtype = ir.DataType.DOUBLE
        assert proofs.exact(value) is exact


@pytest.mark.parametrize(
    ("body", "fits", "factor"),
    [
        ("v = Add(a, b)\n y = Cast<to=1>(v)", True, None),
        ("v = Add(a, any)\n y = Cast<to=1>(v)", False, None),
        ("v = Mul(a, tenth)\n y = Cast<to=1>(v)", True, "tenth"),
        ("v = Add(a, tenth)\n y = Cast<to=1>(v)", False, "-tenth"),
        ("v = Mul(a, most)\n y = Cast<to=1>(v)", False, "-most"),
        ("v = Mul(a, least)\n y = Cast<to=1>(v)", False, "-least"),
        ("v = Mul(a, nought)\n y = Cast<to=1>(v)", True, "nought"),
        ("v = Add(a, b)\n w = Neg(v)\n y = Cast<to=1>(w)", False, None),
        ("v = Add(a, b)\n w = Cast<to=10>(v)\n y = Cast<to=1>(w)", False, None),
        ("v = Add(a, b)\n w = Cast<to=1>(v)\n y = Abs(w)", True, None),
        ("v = Add(a, b)\n w = Cast<to=1>(v)\n u = Exp(v)\n t = Cast<to=1>(u)\n y = Add(w, t)", False, None),
        ("v = Exp(a)\n y = Cast<to=1>(v)", False, None),
        ("v = Mul(a, any)\n y = Cast<to=1>(v)", False, None),
        ("v = Mul(a, tenth)\n w = Exp(v)\n y = Cast<to=1>(w)", False, "-tenth"),
    ],
)  # fmt: skip
def test_numbers_that_are_rounded_next(body: str, fits: bool, factor: str | None) -> None:
    proofs, values = known(graph(body))
    assert proofs.fits(values["v"]) is fits
    if factor is not None:
        assert proofs.fits(values[factor.removeprefix("-")]) is not factor.startswith("-")


def test_what_is_an_output_is_read_as_it_is() -> None:
    proofs, values = known("g (float[4] x) => (double[4] v) { a = Cast<to=11>(x)\n v = Add(a, a) }")
    assert not proofs.fits(values["v"])


@pytest.mark.parametrize(("size", "read"), [(4, True), (5, False)])
def test_large_constants_are_not_read(
    size: int, read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactness, "_READ", 4)
    value = ir.Value(name="c", const_value=ir.tensor(np.zeros(size)))
    value.dtype = ir.DataType.DOUBLE
    assert Exactness(Bounds()).exact(value) is read


@pytest.mark.parametrize(
    ("number", "factor"),
    [
        (float(np.finfo(np.float32).max), True),
        (float(np.finfo(np.float32).tiny), True),
        (float(np.finfo(np.float32).tiny) / 2, False),
        (float(np.finfo(np.float32).max) * 2, False),
        (0.0, True),
        (1.0, True),
    ],
)
def test_the_ends_of_what_may_be_a_factor(number: float, factor: bool) -> None:
    value = ir.Value(name="c", const_value=ir.tensor(np.array([number, 0.5])))
    assert exactness._is_factor(value) is factor


def test_what_nothing_is_known_of_is_not_whole() -> None:
    proofs, values = known(graph("v = x.Abs(n)\n y = Cast<to=1>(v)"))
    assert not proofs.whole(values["any"])
    assert proofs.whole(values["n"])


def test_a_branch_that_reads_a_value_reads_more_than_its_rounding() -> None:
    text = """g (float[4] x, bool c) => (float[4] y) {
  a = Cast<to=11>(x)
  v = Add(a, a)
  y = If (c) <then_branch = t () => (float[4] p) { p = Cast<to=1>(v) },
              else_branch = e () => (float[4] q) { q = Identity(x) }> }"""
    proofs, values = known(text)
    assert not proofs.fits(values["v"])


def test_a_large_constant_is_no_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactness, "_READ", 4)
    value = ir.Value(name="c", const_value=ir.tensor(np.full(5, 0.1)))
    value.dtype = ir.DataType.DOUBLE
    assert not exactness._is_factor(value)


def test_a_factor_of_what_is_not_rounded_next_stays_double() -> None:
    proofs, values = known(graph("v = Mul(any, tenth)\n y = Cast<to=1>(v)"))
    assert not proofs.fits(values["tenth"])


def test_integers_of_any_size_are_no_numbers_of_float32() -> None:
    proofs, values = known(graph("i = Cast<to=7>(any)\n v = Cast<to=11>(i)\n y = Cast<to=1>(v)"))
    assert not proofs.exact(values["v"])
