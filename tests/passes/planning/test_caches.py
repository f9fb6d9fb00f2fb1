"""Bytes of keys and values for one token, by hand."""

from __future__ import annotations

import itertools

import onnx_ir as ir
import pytest

from samba_onnx.passes.planning.caches import cached_bytes
from tests.passes.planning.plan_samples import parse

TOKEN = (3 * 6 + 3 * 8) * 4
"""Of three heads: a row of values, and a row of keys."""


def attention(
    between: str = "",
    scores: str = "s",
    keys: str = "k = Transpose (m)",
    given: str = "float[2,3,7,8] m",
    weights: str = "",
    product: str = "y = MatMul (w, v)",
) -> ir.Model:
    return parse(f"""g (float[2,3,5,8] q, {given}, float[2,3,7,6] v, bool b) => (float[2,3,5,6] y)
    <float[2,3,8,7] k, float[2,3,5,7] s, float[2,3,5,7] t, float[2,3,5,7] w> {{
        {keys}
        s = MatMul (q, k)
        {between}
        w = Softmax ({scores})
        {weights}
        {product}
    }}""")


def test_keys_and_values_of_a_token_and_the_tokens_that_attend() -> None:
    assert cached_bytes(attention()) == (TOKEN, 2 * 5)
    assert cached_bytes(parse("g (float[4] x) => (float[4] y) { y = Relu (x) }")) == (0, 0)


def test_heads_that_were_repeated_are_kept_once() -> None:
    keys = "e = Expand (m, n)\n k = Transpose (e)"
    repeated = attention(keys=keys, given="float[2,1,7,8] m, int64[4] n")
    values = {value.name: value for node in repeated.graph for value in node.outputs}
    values["e"].shape = ir.Shape([2, 3, 7, 8])
    assert cached_bytes(repeated) == ((3 * 6 + 8) * 4, 2 * 5)
    # What is added is no other form: the sum is what is kept.
    other = attention(keys="a = Add (m, m)\n k = Transpose (a)", given="float[1,1,1,8] m")
    assert cached_bytes(other) == (TOKEN, 2 * 5)


def widened(steps: int) -> ir.Model:
    names = ["m", *(f"e{number}" for number in range(1, steps)), "e"]
    keys = "\n".join(f"{b} = Cast<to=1> ({a})" for a, b in itertools.pairwise(names))
    return with_types(attention(keys=f"{keys}\n k = Transpose (e)", given="bfloat16[2,3,7,8] m"))


def with_types(model: ir.Model) -> ir.Model:
    """Return a model that knows what its Casts write."""
    for node in model.graph:
        if node.op_type == "Cast" and node.inputs[0] is not None:
            node.outputs[0].shape = node.inputs[0].shape
            node.outputs[0].dtype = ir.DataType(node.attributes["to"].as_int())
    return model


def test_keys_that_were_widened_are_kept_narrow() -> None:
    narrow = (3 * 6 * 4 + 3 * 8 * 2, 2 * 5)
    assert cached_bytes(widened(1)) == narrow
    # With the Transpose seven Casts are the most forms that are looked at.
    assert cached_bytes(widened(7)) == narrow
    assert cached_bytes(widened(8)) == (TOKEN, 2 * 5)
    rounded = "n = Cast<to=16> (m)\n e = Cast<to=1> (n)\n k = Transpose (e)"
    assert cached_bytes(with_types(attention(keys=rounded))) == narrow


def test_rows_that_are_moved_behind_a_cast_are_counted_where_they_are_read() -> None:
    model = parse("""g (float[2,3,5,8] q, float[2,3,8,7] k, bfloat16[7,2,3,6] m) => (float[2,3,5,6] y)
    <float[2,3,5,7] s, float[2,3,5,7] w, float[2,3,7,6] v> {
        c = Cast<to=1> (m)
        v = Transpose<perm=[1,2,0,3]> (c)
        s = MatMul (q, k)
        w = Softmax (s)
        y = MatMul (w, v)
    }""")
    assert cached_bytes(with_types(model)) == (3 * 6 * 2 + 3 * 8 * 4, 2 * 5)


def scaled(steps: int) -> str:
    names = ["s", *(f"a{number}" for number in range(1, steps)), "t"]
    return "\n".join(f"{b} = Mul ({a}, {a})" for a, b in itertools.pairwise(names))


def casts(steps: int) -> str:
    names = ["w", *(f"c{number}" for number in range(1, steps)), "d"]
    return "\n".join(f"{b} = Cast<to=1> ({a})" for a, b in itertools.pairwise(names))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"between": "o = Add (q, q)\n t = Add (o, s)", "scores": "t"}, True),
        ({"between": "c = Cast<to=1> (s)\n t = Where (b, c, c)", "scores": "t"}, True),
        ({"between": "c = Div (s, s)\n t = Squeeze (c)", "scores": "t"}, True),
        ({"between": "t = Relu (s)", "scores": "t"}, False),
        ({"between": scaled(7), "scores": "t"}, True),
        ({"between": scaled(8), "scores": "t"}, False),
        ({"weights": "d = Cast<to=1> (w)\n z = Relu (w)", "product": "y = MatMul (d, v)"}, True),
        ({"weights": "d = Mul (w, w)", "product": "y = MatMul (d, v)"}, True),
        ({"weights": casts(8), "product": "y = MatMul (d, v)"}, False),
        ({"weights": casts(7), "product": "y = MatMul (d, v)"}, True),
        ({"weights": "d = Relu (w)", "product": "y = MatMul (d, v)"}, False),
        ({"product": "y = MatMul (v, w)"}, False),
        ({"product": "y = Add (w, v)"}, False),
        ({"weights": "d = Cast<to=1> (w)\n e = Relu (d)"}, True),
    ],
)
def test_both_products_are_looked_for_around_the_softmax(
    change: dict[str, str], found: bool
) -> None:
    assert cached_bytes(attention(**change)) == ((TOKEN, 10) if found else (0, 0))


def test_scores_of_an_input_are_no_attention() -> None:
    assert cached_bytes(attention(scores="q")) == (0, 0)


@pytest.mark.parametrize(("rows", "sequences"), [(7, 1), (14, 2), (3, 1)])
def test_rows_of_all_sequences_may_lie_behind_each_other(rows: int, sequences: int) -> None:
    model = parse(f"""g (float[5,8] q, float[8,7] k, float[{rows},6] v) => (float[5,6] y)
    <float[5,7] s, float[5,7] w> {{
        s = MatMul (q, k)
        w = Softmax (s)
        y = MatMul (w, v)
    }}""")
    size = (rows * 6 + 8 * 7) * 4
    assert cached_bytes(model) == (-(-size // (7 * sequences)), 5 * sequences)


def test_three_axes_are_sequences_tokens_and_numbers() -> None:
    model = parse("""g (float[2,5,8] q, float[2,8,7] k, float[2,7,6] v) => (float[2,5,6] y)
    <float[2,5,7] s, float[2,5,7] w> {
        s = MatMul (q, k)
        w = Softmax (s)
        y = MatMul (w, v)
    }""")
    assert cached_bytes(model) == ((6 + 8) * 4, 2 * 5)


def test_of_several_layers_bytes_add_up_and_the_most_tokens_count() -> None:
    text = """g (float[5,8] q, float[8,7] k, float[7,6] v, float[3,8] p) => (float[5,6] y, float[3,6] z)
    <float[5,7] s, float[5,7] w, float[3,7] t, float[3,7] u> {
        s = MatMul (q, k)
        w = Softmax (s)
        y = MatMul (w, v)
        t = MatMul (p, k)
        u = Softmax (t)
        z = MatMul (u, v)
    }"""
    assert cached_bytes(parse(text)) == (2 * (6 + 8) * 4, 5)


def test_what_has_no_known_size_counts_nothing() -> None:
    text = (
        "g (float[5,8] q, float[8,n] k, float[n,6] v) => (float[5,6] y) <float[5,n] s> {{\n{0}\n}}"
    )
    body = "s = MatMul (q, k)\n w = Softmax (s)\n y = MatMul (w, v)"
    assert cached_bytes(parse(text.format(body))) == (0, 0)
    known = text.replace("float[5,n] s", "float[5,7] s")
    assert cached_bytes(parse(known.format(body))) == (0, 5)
