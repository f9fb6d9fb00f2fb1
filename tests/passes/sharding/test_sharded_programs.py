"""Cut models compute what the whole ones do: held against onnxruntime on the model as it was.

Sums over an axis that is cut are added in another order: results of float32 differ by rounding, here of
sums of at most some hundred summands of magnitude 1, so that 2e-5 is some dozens of units in the last place.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from samba_onnx.errors import UsageError
from samba_onnx.facts.domains import ALL_GATHER, ALL_REDUCE, SAMBA_DOMAIN
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.sharding.collectives import CONTENT, SHARDED
from samba_onnx.passes.sharding.cuts import Cut
from samba_onnx.passes.sharding.layouts import Sharding, local_shape
from samba_onnx.passes.sharding.sharded_programs import ParallelOptions, cut_part
from samba_onnx.program.kinds import SymbolKind
from tests.passes.sharding.executed import CutModel, cut_model
from tests.passes.sharding.models import LENGTH, WORDS, Writer, gpt2, llama

TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}


def hold(proto: onnx.ModelProto, rdus: int, mode: str = "weight") -> CutModel:
    """Cut a language model, and hold what it computes against onnxruntime."""
    batch = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    words = np.random.default_rng(3).integers(0, WORDS, (batch, LENGTH))
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"x": words})
    done = cut_model(proto, rdus, mode)
    (given,) = done.run({"x": words}).values()
    np.testing.assert_allclose(given, expected, **TOLERANCE)
    return done


def kinds(done: CutModel) -> list[str]:
    return [node.op_type for node in done.model.graph if node.domain]


@pytest.mark.parametrize("rdus", [2, 4, 8])
def test_decoder_needs_two_sums_per_layer(rdus: int) -> None:
    done = hold(llama(2, heads=8, kept=8), rdus)
    assert kinds(done) == [ALL_GATHER, *[ALL_REDUCE] * 4]
    assert not done.cut.reasons
    cut = done.sharded()
    assert len([name for name in cut if name.startswith("w")]) == 1 + 2 * 7 + 1


@pytest.mark.parametrize(("kept", "rdus"), [(2, 4), (2, 8), (1, 4), (4, 16), (2, 16)])
def test_heads_of_keys_are_on_several_rdus(kept: int, rdus: int) -> None:
    done = hold(llama(1, heads=16, kept=kept, width=2), rdus)
    assert kinds(done).count(ALL_REDUCE) == 4
    assert any("RDUs" in reason for reason in done.cut.reasons)


def test_heads_that_cannot_be_divided_are_whole() -> None:
    done = hold(llama(1, heads=6, kept=3), 4)
    assert any("cannot be divided" in reason for reason in done.cut.reasons)


@pytest.mark.parametrize("rdus", [2, 3, 6])
def test_one_layer_of_queries_keys_and_values_and_tied_embeddings(rdus: int) -> None:
    done = hold(gpt2(2, heads=6), rdus)
    # Places; words, which the head reads, too, attention, and the second linear layer.
    assert sorted(kinds(done)) == [ALL_GATHER, ALL_REDUCE, ALL_REDUCE, ALL_REDUCE]
    assert not done.cut.reasons
    assert done.sharded()[done.outputs[0]] == (2,)


@pytest.mark.parametrize("rdus", [2, 4, 16])
@pytest.mark.parametrize("model", [llama(16, 4, 2), gpt2(16, 4)], ids=["llama", "gpt2"])
def test_batch_needs_no_exchange(model: onnx.ModelProto, rdus: int) -> None:
    done = hold(model, rdus, "batch")
    assert done.collectives == 0
    assert done.sharded()["x"] == (0,)
    assert done.sharded()[done.outputs[0]] == (0,)


def test_batch_that_cannot_be_divided_is_refused() -> None:
    with pytest.raises(UsageError, match="a batch of 3 cannot be divided between 2 RDUs"):
        cut_model(llama(3, 4, 2), 2, "batch")


@pytest.mark.parametrize(("mode", "rdus"), [("rows", 2), ("weight", 1), ("batch", 17)])
def test_options_are_checked(mode: str, rdus: int) -> None:
    with pytest.raises(UsageError):
        ParallelOptions(mode, rdus)


def test_initializers_that_are_cut_become_residents() -> None:
    done = cut_model(gpt2(2, heads=6), 3)
    inputs = {value.name or "": value for value in done.model.graph.inputs if value.name != "x"}
    assert inputs.keys() == done.cut.contents.keys() == done.cut.kinds.keys()
    for name, value in inputs.items():
        whole = done.cut.contents[name]
        assert value.meta[CONTENT] is True
        assert value.meta[SHARDED].shape == tuple(whole.shape.numpy())
        assert value.dtype == whole.dtype
        assert tuple(value.shape or ()) == local_shape(
            value.meta[SHARDED].shape, Sharding(value.meta[SHARDED].axes)
        )
        is_weight = whole.dtype.is_floating_point()
        assert done.cut.kinds[name] is (SymbolKind.WEIGHT if is_weight else SymbolKind.BUFFER)
    assert {"w0_shard", "first_word_shard"} < inputs.keys()
    assert not done.model.graph.initializers.keys() & {"w0", "first_word"}
    exchanges = [node for node in done.model.graph if node.domain]
    assert [node.attributes["rdus"].as_int() for node in exchanges] == [3] * len(exchanges)
    assert done.model.opset_imports[SAMBA_DOMAIN] == 1


def test_one_shard_serves_all_who_read_it() -> None:
    writer = Writer()
    weight = writer.weight(8, 8)
    both = writer.node(
        "Add", *(writer.node("MatMul", x, weight) for x in ("x", writer.node("Neg", "x")))
    )
    proto = writer.model({both: (4, 8)}, {"x": (onnx.TensorProto.FLOAT, (4, 8))})
    done = cut_model(proto, 2)
    assert [value.name for value in done.model.graph.inputs] == ["x", "w0_shard"]
    assert done.cut.reasons == {}


def test_bodies_read_whole_values() -> None:
    model = ir.from_proto(
        onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 18]>
            g (float[2,4] x, bool c) => (float[2,4] y) <float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}> {
              h = MatMul(x, w)
              y = If (c) <
                then_branch = t () => (float[2,4] a) { a = Sub(h, x) },
                else_branch = e () => (float[2,4] b) { b = Abs(h) }
              >
            }"""
        )
    )
    InferShapesPass()(model)
    cut = Cut(2, "weight")
    cut_part(model, cut, {}, {})
    (product, gather, branch) = model.graph
    assert [node.op_type for node in (product, gather)] == ["MatMul", ALL_GATHER]
    whole = gather.outputs[0]
    bodies = [attribute.as_graph() for attribute in branch.attributes.values()]
    assert [list(body[0].inputs) for body in bodies] == [[whole, model.graph.inputs[0]], [whole]]
    assert cut.reasons == {}
