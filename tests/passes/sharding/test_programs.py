"""Cut models compute what the whole ones do: held against onnxruntime on the model as it was.

Sums over an axis that is cut are added in another order: results of float32 differ by rounding, here of
sums of at most some hundred summands of magnitude 1, so that 2e-5 is some dozens of units in the last place.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from samba_onnx.errors import UsageError
from samba_onnx.facts.domains import ALL_GATHER, ALL_REDUCE
from samba_onnx.passes.sharding.programs import ParallelOptions
from tests.passes.sharding.executed import CutModel, cut_model
from tests.passes.sharding.models import LENGTH, WORDS, gpt2, llama

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
