"""Values that lie in a stated way: inputs as an earlier part left them, outputs as later ones read them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import GRADIENT
from samba_onnx.passes.sharding.collectives import SHARDED
from samba_onnx.passes.sharding.cuts import Cut
from samba_onnx.passes.sharding.layouts import WHOLE, Sharding, blocks, even, reshaped
from samba_onnx.passes.sharding.sharded_programs import (
    MOST_RDUS,
    ParallelOptions,
    cut_inputs,
    cut_part,
)
from samba_onnx.passes.sharding.sharder import Sharder
from samba_onnx.pef.sharding import AxisSplit
from samba_onnx.program.kinds import SymbolKind
from tests.passes.sharding.executed import CutModel, cut_model


def parse(text: str, opset: int = 21) -> onnx.ModelProto:
    """Return a model in text form, with its shapes."""
    header = f'<ir_version: 10, opset_import: ["": {opset}, "mine": 1]>'
    return onnx.shape_inference.infer_shapes(onnx.parser.parse_model(f"{header}\n{text}"))


def hold(text: str, opset: int = 21, rdus: int = 2, **regions: AxisSplit) -> CutModel:
    """Cut a model whose values lie as regions say, and hold what it computes against onnxruntime."""
    proto = parse(text, opset)
    cut = Cut(rdus, "weight", {name: Sharding((split,)) for name, split in regions.items()})
    done = cut_model(proto, rdus, cut=cut)
    generator = np.random.default_rng(0)
    inputs = {
        value.name: generator.integers(
            -9, 9, [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        ).astype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        for value in proto.graph.input
    }
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    # small whole numbers: sums are exact in any order
    for expected, (name, value) in zip(
        session.run(None, inputs), done.run(inputs).items(), strict=True
    ):
        np.testing.assert_array_equal(value, expected, name)
    return done


HALVES = even(0, 4, 2, 2)


def test_an_output_lies_as_its_region_and_a_gradient_as_what_it_is_of() -> None:
    text = f"g (float[4] x) => (float[4] y, float[4] w{GRADIENT}) {{ y = Tanh(x) w{GRADIENT} = Neg(x) }}"
    proto = parse(text)
    cut = Cut(2, "weight", {"y": Sharding((HALVES,)), "w": Sharding((HALVES,))})
    done = cut_model(proto, 2, cut=cut)
    assert {done.sharded()[name] for name in done.outputs} == {(0,)}


def test_how_what_stays_on_the_device_lies_is_known_to_later_parts() -> None:
    model = ir.from_proto(
        parse(
            "g (float[4] x, float[4] r, float[4] s) => (float[4] y) { a = Add(x, r) y = Add(a, s) }"
        )
    )
    cut = Cut(2, "weight", {"x": Sharding((HALVES,))})
    cut_part(model, cut, {"r": SymbolKind.BUFFER}, {"s": "kept"})
    assert cut.regions == dict.fromkeys(("x", "r", "kept", "y"), Sharding((HALVES,)))


@pytest.mark.parametrize("kind", [SymbolKind.BUFFER, None])
def test_what_nothing_reads_lies_as_what_is_written_there(kind: SymbolKind | None) -> None:
    """A cache that a prompt fills; an input of every run that only has the name of a region is whole."""
    model = ir.from_proto(
        parse("g (float[4] x, float[4] before) => (float[4] after) { after = Tanh(x) }")
    )
    cut = Cut(2, "weight", {"x": Sharding((HALVES,))})
    kinds = {} if kind is None else {"before": kind}
    cut_part(model, cut, kinds, {} if kind is None else {"after": "before"})
    assert cut.regions.get("before", WHOLE) == (WHOLE if kind is None else Sharding((HALVES,)))
    assert [node.op_type for node in model.graph] == ["Tanh"]


def test_what_a_sum_is_written_to_is_whole_though_nothing_reads_it() -> None:
    model = ir.from_proto(
        parse("g (float[4] x, float[1] before) => (float[1] after) { after = ReduceSum(x) }")
    )
    cut = Cut(2, "weight", {"x": Sharding((HALVES,))})
    cut_part(model, cut, {"before": SymbolKind.BUFFER}, {"after": "before"})
    assert cut.regions["before"] == WHOLE
    assert [node.op_type for node in model.graph] == ["ReduceSum", "AllReduce"]


def test_reasons_are_counted() -> None:
    done = hold(
        "g (float[4] x) => (float[1] y, float[1] z) { y = ReduceMax(x) z = ReduceMin(x) w = ReduceMax(x) }",
        x=HALVES,
    )
    counts = {"ReduceMax takes all elements of an axis that is cut": 2,
              "ReduceMin takes all elements of an axis that is cut": 1}  # fmt: skip
    assert done.cut.reasons == counts


def test_what_nobody_reads_is_no_input() -> None:
    model = ir.from_proto(parse("g (float[4] x) => (float[4] y) { y = Neg(x) }"))
    cut = Cut(2, "weight")
    sharder = Sharder(model, cut, {}, str)
    sharder.of_each("places", np.arange(4).reshape(2, 2))
    assert len(model.graph.inputs) == 2
    sharder.finish(lambda name: False)
    assert [value.name for value in model.graph.inputs] == ["x"]
    assert not cut.contents
    assert not cut.kinds
    assert not model.graph.initializers


@pytest.mark.parametrize(
    ("before", "after", "axes"),
    [
        # each of two RDUs with the same part makes its share of the copies
        ("2,1,3", "2, 4, 3", (0, 1)),
        ("2,1", "5, 2, 4", (1, 2)),
        ("2,1", "2, 3", (0,)),
        ("2,4", "5, 2, 4", (1,)),
        ("2,4", "2, 4", (0,)),
        ("2", "3, 2", (1,)),
    ],
)
def test_copies_are_shared_where_there_are_enough(
    before: str, after: str, axes: tuple[int, ...]
) -> None:
    count = after.count(",") + 1
    text = f"g (float[{before}] x) => (y) <int64[{count}] s = {{{after}}}> {{ y = Expand(x, s) }}"
    done = hold(text, rdus=4, x=even(0, 2, 2, 4))
    assert done.sharded()["y"] == axes


def test_pieces_of_a_split_are_stated_once() -> None:
    done = hold(
        "g (float[12] x) => (y, z) { a, b = Split<num_outputs=2>(x) y = Neg(a) z = Abs(b) }",
        x=blocks(0, ((6, 2), (6, 2)), 2),
    )
    split = done.model.graph[0]
    assert "num_outputs" not in split.attributes
    hold(
        "g (float[12] x) => (y, z) <int64[2] s = {8, 4}> { y, z = Split(x, s) }",
        x=blocks(0, ((8, 2), (4, 2)), 2),
    )


def test_axes_that_an_old_version_states_by_an_attribute() -> None:
    text = "g (float[3,4,5] x) => (y) { y = ReduceMax<axes=[-3], keepdims=0>(x) }"
    assert hold(text, 13, x=even(1, 4, 2, 2)).sharded()["y"] == (0,)
    text = text.replace("-3", "1")
    done = hold(text, 13, x=even(1, 4, 2, 2))
    assert "y" not in done.sharded()


def test_a_searched_axis_is_the_first_unless_stated() -> None:
    text = "g (float[4,6] x) => (y) { y = ArgMax<keepdims=0>(x) }"
    assert "y" not in hold(text, x=HALVES).sharded()
    assert hold(text, x=even(1, 6, 2, 2)).sharded()["y"] == (0,)


def test_operators_of_other_domains_have_rules_of_no_other() -> None:
    proto = parse(
        "g (float[4] x) => (float[4] y, float[4] z) { y = mine.Tanh(x) z = mine.Identity(x) }"
    )
    cut = Cut(2, "weight", {"x": Sharding((HALVES,))})
    done = cut_model(proto, 2, cut=cut)
    assert not done.sharded().keys() & {"y", "z"}
    assert done.cut.reasons == {
        "Tanh has no rule for shards": 1,
        "Identity has no rule for shards": 1,
    }


def test_an_operator_of_another_domain_reads_its_weight_whole() -> None:
    proto = parse("""g (float[4,2] x) => (float[4,2] y) <float[2,2] w = {1, 2, 3, 4}, float[2,2] h> {
        h = mine.Identity(w)
        y = MatMul(x, h)
    }""")
    done = cut_model(proto, 2)
    (own,) = (node for node in done.model.graph if node.domain == "mine")
    assert own.inputs[0] is done.model.graph.initializers["w"]


def test_a_weight_that_one_node_reads_whole_is_whole_for_the_next() -> None:
    text = """g (float[4,4] x, float[4,4] w) => (y, z) {
        a = Tanh(x)
        y = MatMul(w, a)
        z = MatMul(x, w)
    }"""
    model = ir.from_proto(parse(text))
    cut_part(model, Cut(2, "weight"), {"w": SymbolKind.WEIGHT}, {})
    assert SHARDED not in model.graph.inputs[1].meta


def test_parts_of_unequal_shape_are_no_cut() -> None:
    # the first has two rows of three, the second three rows of two
    split = AxisSplit(0, ((0, 6), (3, 5, 6, 8, 9, 11)))
    assert reshaped(Sharding((split,)), (12,), (4, 3)) is None


def test_a_value_that_is_cut_along_two_axes_is_multiplied_whole() -> None:
    done = hold(
        """g (float[2,1] x, float[4,3] w) => (y) <int64[2] s = {2, 4}> {
            a = Expand(x, s)
            b = Tanh(w)
            n = Round(b)
            y = MatMul(a, n)
        }""",
        rdus=4,
        x=even(0, 2, 2, 4),
    )
    assert "y" not in done.sharded()


def test_of_two_factors_the_smaller_is_gathered() -> None:
    text = "g (float[ROWS,6] x, float[6,20] z) => (y) { y = MatMul(x, z) }"
    for rows, place in ((4, 0), (30, 1)):
        done = hold(text.replace("ROWS", str(rows)), x=even(0, rows, 2, 2), z=even(1, 20, 2, 2))
        (gather,) = (node for node in done.model.graph if node.op_type == "AllGather")
        assert gather.inputs[0] is done.model.graph.inputs[place]


def test_names_of_new_values_are_free() -> None:
    text = """g (float[4,6] x, float[6] factor) => (y) <float[6] places = {1,2,3,4,5,6}, int64[1] axes = {0}> {
        a = Add(x, places)
        m = ReduceMean<keepdims=0>(a, axes)
        y = Add(m, factor)
    }"""
    done = hold(text, x=HALVES)
    names = [
        value.name for value in (*done.model.graph.inputs, *done.model.graph.initializers.values())
    ]
    assert len(names) == len(set(names))


def test_what_is_wrong_with_numbers_and_modes_is_said() -> None:
    with pytest.raises(UsageError, match=r"^tensor parallel is 'rows': expected batch or weight$"):
        ParallelOptions("rows", 2)
    for rdus in (2, MOST_RDUS):
        assert ParallelOptions("batch", rdus).rdus == rdus
    for rdus in (1, MOST_RDUS + 1):
        with pytest.raises(
            UsageError, match=f"for {rdus} RDUs: give a number from 2 to {MOST_RDUS}"
        ):
            ParallelOptions("batch", rdus)
    model = ir.from_proto(parse("g (float x) => (y) { y = Neg(x) }"))
    with pytest.raises(UsageError, match=r"^a model whose inputs have no batch cannot be divided"):
        cut_inputs(model, Cut(2, "batch"), ["x"], {})


def test_a_value_that_is_not_cut_is_whole() -> None:
    assert hold("g (float[4] x) => (float[4] y) { y = Neg(x) }").cut.regions["y"] == WHOLE
