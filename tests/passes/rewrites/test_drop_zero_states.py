from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.drop_zero_states import DEEPEST, DropZeroStatesPass
from tests.passes.rewrites.applying import add_weights, check, numbers, parse

HIDDEN = 3
ZEROS = """h = Concat<axis=0>(two, n, three)
 z = ConstantOfShape(h)
 s = Slice(z, nought, one)"""
ONES = ZEROS.replace("OfShape(", "OfShape<value = float[1] {1.0}>(")


def dropped(
    layer: str, gates: int, states: str, made: str, *, modified: bool | None = True
) -> ir.Node:
    """Return the recurrent layer after the pass, which must not change what it computes."""
    body = f"{made}\n y = {layer}<hidden_size=3>(x, w, r{states})"
    model = parse(f"""g (float[4,m,2] x, int64[1] n, float[1,k,2] w, float[1,k,3] r, float[1,2,3] i) => (y)
<int64[1] two = {{2}}, int64[1] three = {{3}}, int64[1] nought = {{0}}, int64[1] one = {{1}}> {{ {body} }}""")  # fmt: skip
    weights = {
        "w": numbers(1, gates * HIDDEN, 2),
        "r": numbers(1, gates * HIDDEN, HIDDEN, seed=1),
        "i": np.zeros((1, 2, HIDDEN), np.float32),
    }
    add_weights(model, weights)
    inputs = [numbers(4, 2, 2, seed=2), np.array([2])]
    check(model, DropZeroStatesPass(), inputs=inputs, modified=modified)
    return next(node for node in model.graph if node.op_type == layer)


@pytest.mark.parametrize(
    ("layer", "gates", "states"),
    [("LSTM", 4, ",,, s, s"), ("GRU", 3, ",,, s"), ("RNN", 1, ",,, s")],
)
def test_zeros_that_are_made_at_run_time_are_left_out(layer: str, gates: int, states: str) -> None:
    assert len(dropped(layer, gates, states, ZEROS).inputs) == 3


def test_zeros_that_are_stored_are_left_out() -> None:
    assert len(dropped("LSTM", 4, ",,, i, i", "").inputs) == 3


def test_only_what_is_zero_is_left_out() -> None:
    node = dropped("LSTM", 4, ",,, s, i", ONES)
    assert [value is None for value in node.inputs] == [False] * 3 + [True, True, False]
    node = dropped("LSTM", 4, ",,, i, s", ONES)
    assert [value is None for value in node.inputs] == [False] * 3 + [True] * 3 + [False]


@pytest.mark.parametrize("made", [ONES, ZEROS + "\n s0 = Cos(s)"])
def test_other_states_stay(made: str) -> None:
    states = ",,, s0" if "s0" in made else ",,, s"
    assert len(dropped("GRU", 3, states, made, modified=False).inputs) == 6


def test_a_layer_without_states_stays_and_changes_nothing_of_the_one_before() -> None:
    text = """g (float[4,2,2] x, int32[2] l, float[1,12,2] w, float[1,12,3] r, float[1,24] b,
float[1,2,3] i) => (y) {
 h, f = LSTM<hidden_size=3>(x, w, r, , , STATE)
 y, c = LSTM<hidden_size=3>(x, w, r, b, l) }"""
    for first, modified in ((0.0, True), (1.0, False)):
        model = parse(text.replace("STATE", "i"))
        add_weights(model, {"i": np.full((1, 2, 3), first, np.float32)})
        assert DropZeroStatesPass()(model).modified is modified
        assert [len(node.inputs) for node in model.graph] == [3 if modified else 6, 5]


def test_a_long_way_to_the_state_is_not_followed() -> None:
    moves = "\n".join(f" s{n + 1} = Identity(s{n})" for n in range(DEEPEST))
    made = ONES.replace("s = Slice", "s0 = Slice") + "\n" + moves
    assert len(dropped("GRU", 3, f",,, s{DEEPEST}", made, modified=False).inputs) == 6
