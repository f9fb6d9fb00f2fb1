"""A fallback in two: what is computed when weights are loaded, and what every run computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

from samba_onnx.errors import PefFormatError
from samba_onnx.runtime.engine.at_load import split_at_load

RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal((4, 4)).astype(np.float32) for _ in range(2))


def model(body: str, outputs: str = "float[4,4] y", types: str = "") -> onnx.ModelProto:
    """Return a model whose nodes are named after their first results."""
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[4,4] x, float[4,4] w) '
        f"=> ({outputs}) {types} {{ {body} }}"
    )
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    for node in proto.graph.node:
        node.name = node.output[0]
    return proto


def run(part: onnx.ModelProto, feed: dict[str, Any]) -> dict[str, Any]:
    onnx.checker.check_model(part, full_check=True)
    names = [value.name for value in part.graph.output]
    inputs = {value.name: feed[value.name] for value in part.graph.input}
    return dict(
        zip(names, ort.InferenceSession(part.SerializeToString()).run(None, inputs), strict=True)
    )


@pytest.mark.parametrize(
    ("body", "outputs", "at_load", "first", "rest"),
    [
        # What the rest reads of it passes from one to the other.
        ("t = Neg(w) s = Abs(t) y = Add(x, s)", "float[4,4] y", {"t", "s"}, (["w"], ["s"]), ["x", "s"]),
        # The rest may read a weight, too; a constant may be in either part.
        ("t = Sub(w, c) y = Add(t, w) z = Mul(x, c)", "float[4,4] y, float[4,4] z", {"t"},
         (["w"], ["t"]), ["x", "w", "t"]),
        # An output of the fallback that is known at load is no output of the rest.
        ("t = Neg(w) y = Add(x, t)", "float[4,4] y, float[4,4] t", {"t"}, (["w"], ["t"]), ["x", "t"]),
        # A body reads values without naming them as operands.
        ("""t = Neg(w) k = ReduceMax<keepdims=0>(x) d = Greater(k, k) y = If(d)
            <then_branch = a () => (float[4,4] p) { p = Add(t, x) },
             else_branch = b () => (float[4,4] q) { q = Sub(t, x) }>""", "float[4,4] y", {"t"},
         (["w"], ["t"]), ["x", "t"]),
    ],
)  # fmt: skip
def test_both_parts_together_are_the_whole(
    body: str, outputs: str, at_load: set[str], first: tuple[list[str], list[str]], rest: list[str]
) -> None:
    whole = model(body, outputs, "<float[4,4] c = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}>")
    feed = {"x": X, "w": W}

    split = split_at_load(whole, at_load, {"w"}, "fallback 1 (cpu)")

    assert split is not None
    at_first, later = split
    assert later is not None
    ends = [[v.name for v in values] for values in (at_first.graph.input, at_first.graph.output)]
    assert (ends[0], ends[1]) == first
    assert sorted(v.name for v in later.graph.input) == sorted(rest)
    known = run(at_first, feed)
    results = {**known, **run(later, {**feed, **known})}
    for name, value in run(whole, feed).items():
        np.testing.assert_array_equal(results[name], value)


def test_nothing_is_left_for_a_run_where_all_is_known_at_load() -> None:
    split = split_at_load(model("t = Neg(w) y = Abs(t)"), {"t", "y"}, {"w"}, "fallback 1 (cpu)")
    assert split is not None
    at_first, later = split
    assert later is None
    np.testing.assert_array_equal(run(at_first, {"w": W})["y"], np.abs(-W))


def test_a_fallback_without_such_nodes_stays_whole() -> None:
    assert split_at_load(model("y = Add(x, w)"), set(), {"w"}, "fallback 1 (cpu)") is None


@pytest.mark.parametrize(
    ("body", "fixed", "culprit"),
    [
        ("t = Add(w, x) y = Neg(t)", {"w"}, "x"),
        ("t = Neg(w) y = Add(t, x)", set(), "w"),
        ("k = Neg(x) t = Add(w, k) y = Add(t, x)", {"w"}, "k"),
    ],
)
def test_a_pef_that_computes_at_load_what_runs_change_is_refused(
    body: str, fixed: set[str], culprit: str
) -> None:
    with pytest.raises(PefFormatError, match=rf"fallback 1 \(cpu\) computes at load .*'{culprit}'"):
        split_at_load(model(body), {"t"}, fixed, "fallback 1 (cpu)")


def test_a_value_between_the_parts_must_have_a_type() -> None:
    whole = model("t = Neg(w) y = Add(t, x)")
    del whole.graph.value_info[:]
    with pytest.raises(PefFormatError, match="states no type for 't'"):
        split_at_load(whole, {"t"}, {"w"}, "fallback 1 (cpu)")
