"""What a rule may ask about the node that it writes anew, and why it gives up."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft, own_outputs
from samba_onnx.program.intervals import Interval
from tests.passes.rewrites.applying import parse
from tests.passes.rewrites.foreign.expanding import MICROSOFT, one_node, refusal

MODEL = """g (float[2, N] x, float[3] w) => (float[2, 3] y) {
    y, unread = com.microsoft.Two <scale = 2.0, name = "f", one = 1, none = 0> (x, w)
}"""


@pytest.fixture
def draft() -> Draft:
    (node,) = parse(MODEL, imports=', "com.microsoft": 1').graph
    return Draft(node)


def test_sizes_are_counted_from_either_end(draft: Draft) -> None:
    value, vector = draft.operand(0), draft.operand(1)
    assert draft.size(value, 0) == draft.size(value, -2) == 2
    assert draft.size(vector, -1) == 3
    assert draft.shape(vector) == (3,)


@pytest.mark.parametrize("axis", [1, 2, -3])
def test_a_size_that_is_unknown_or_not_there(draft: Draft, axis: int) -> None:
    with pytest.raises(CannotExpandError, match=f"^dimension {axis} of 'x' is not static$"):
        draft.size(draft.operand(0), axis)


def test_what_is_unknown_of_a_value(draft: Draft) -> None:
    value = ir.Value(name="v")
    for ask, reason in (
        (draft.dtype, "the type of 'v' is unknown"),
        (draft.rank, "the rank of 'v' is unknown"),
        (draft.shape, "the shape of 'v' is not static"),
    ):
        with pytest.raises(CannotExpandError, match=f"^{reason}$"):
            ask(value)
    with pytest.raises(CannotExpandError, match=r"^its table 'v' is not constant$"):
        draft.known(value, "its table")


def test_inputs_that_must_not_be_there(draft: Draft) -> None:
    draft.refuse_inputs(2, 3)
    with pytest.raises(
        CannotExpandError, match=r"^its input 1 has no counterpart in the expansion$"
    ):
        draft.refuse_inputs(2, 1)
    with pytest.raises(CannotExpandError, match=r"^its input 2 is left out$"):
        draft.operand(2)


def test_attributes_that_must_have_their_default(draft: Draft) -> None:
    draft.refuse_attributes(scale=2.0, absent=1, name="f")
    with pytest.raises(CannotExpandError, match=r"^its attribute scale is 2.0, not 1.0$"):
        draft.refuse_attributes(absent=1, scale=1.0)


def test_outputs_that_are_read(draft: Draft) -> None:
    assert draft.is_read(0)
    assert not draft.is_read(1)
    assert not draft.is_read(2)
    ir.node("Relu", [draft.node.outputs[1]])
    assert draft.is_read(1)


def test_packed_weights_with_a_group_of_their_own_stay() -> None:
    value = np.ones((2, 16), np.float32)
    weight, scales = np.zeros((4, 1, 8), np.uint8), np.ones(4, np.float32)
    operands = [value, weight, scales, None, np.zeros(16, np.int32)]
    proto = one_node(MICROSOFT, "MatMulNBits", operands, ["y"], K=16, N=4, block_size=16, bits=4)
    assert refusal(proto) == "its input 4 has no counterpart in the expansion"


def test_axes_are_counted_from_the_front(draft: Draft) -> None:
    value = draft.operand(0)
    assert [draft.axis(value, axis) for axis in (-2, -1, 0, 1)] == [0, 1, 0, 1]
    for axis in (-3, 2):
        with pytest.raises(CannotExpandError, match=f"^'x' of 2 dimensions has no axis {axis}$"):
            draft.axis(value, axis)


def test_counts_are_of_one_at_least(draft: Draft) -> None:
    assert draft.count("one") == 1
    for name in ("none", "absent"):
        with pytest.raises(CannotExpandError, match=f"^its attribute {name} is 0, not 1 or more$"):
            draft.count(name)


def test_a_vector_without_numbers_is_one_of_integers(draft: Draft) -> None:
    assert draft.integers().dtype == ir.DataType.INT64


def test_a_number_is_one_element(draft: Draft) -> None:
    values = [ir.Value(name="v", const_value=ir.tensor(items)) for items in ([2.5], [1.0, 2.0])]
    assert draft.known_number(values[0], "its offset") == 2.5
    with pytest.raises(CannotExpandError, match=r"^its offset 'v' is not one number$"):
        draft.known_number(values[1], "its offset")


def test_where_an_operand_lies_follows_from_what_is_known_and_from_its_type(draft: Draft) -> None:
    value, vector = draft.operand(0), draft.operand(1)
    known = Draft(draft.node, {value: Interval(-1, 2)})
    assert known.interval(value) == Interval(-1, 2)
    assert known.interval(vector) == draft.interval(value) != Interval(-1, 2)
    (node,) = parse("g (uint8[2] x) => (uint8[2] y) { y = Own(x) }").graph
    assert Draft(node).interval(node.inputs[0]) == Interval(0, 255)  # type: ignore[arg-type]


def test_every_output_is_computed_by_a_node_of_its_own(draft: Draft) -> None:
    own = draft.op("Relu", draft.operand(0))
    assert own_outputs(draft, [own]) == [own, None]
    assert [new.op_type for new in draft.nodes] == ["Relu"]
    for result in (own, draft.operand(0)):
        first, second = own_outputs(draft, [own, result])
        assert first is own
        assert second is draft.nodes[-1].outputs[0]
        assert draft.nodes[-1].op_type == "Identity"
        assert draft.nodes[-1].inputs[0] is result
