"""Programs of several RDUs, analyzed: memory, exchanges and caches, against sums made by hand."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from samba_onnx.comparing.value_comparison import compare_values
from samba_onnx.comparing.verification import verify
from samba_onnx.compiling.compiler import analyze, convert
from samba_onnx.errors import UsageError
from samba_onnx.pef.manifest import Cause, Direction, Manifest
from samba_onnx.report import Report
from samba_onnx.runtime.parallel_device import ParallelDevice
from tests.passes.sharding.models import LENGTH, llama

LLAMA_3_70B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 8192,
    "intermediate_size": 28672, "max_position_embeddings": 8192, "num_attention_heads": 64,
    "num_hidden_layers": 80, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 128256,
}  # fmt: skip
"""The published configuration."""


def planned(proto: onnx.ModelProto, rdus: int, mode: str = "weight") -> Manifest:
    return analyze(proto, n_chips=rdus, tensor_parallel=mode)


def linear(rows: int, columns: int) -> onnx.ModelProto:
    weights = [
        numpy_helper.from_array(np.ones((8, columns), np.float32), "a"),
        numpy_helper.from_array(np.ones((columns, 8), np.float32), "b"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (rows, 8)) for n in "xy"]
    graph = helper.make_graph(nodes, "mlp", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("rdus", [2, 3, 4, 16])
def test_a_small_sum_is_sent_to_all_others_at_once(rdus: int) -> None:
    manifest = planned(linear(5, 48), rdus)
    (sent,) = [t for t in manifest.graphs[0].run_transfers if t.cause is Cause.COLLECTIVE]
    assert sent.direction is Direction.RDU_TO_RDU
    assert sent.bytes == (rdus - 1) * 5 * 8 * 4
    assert sent.seconds == manifest.target.exchange_seconds(sent.bytes)
    assert [s.operators for s in manifest.sections if s.collective] == [{"samba::AllReduce": 1}]
    loaded = [t.bytes for t in manifest.graphs[0].load_transfers if t.cause is Cause.WEIGHT]
    assert loaded == [8 * 48 // rdus * 4] * 2


def test_a_large_sum_goes_round_a_ring() -> None:
    rows, rdus = 1 << 17, 4
    manifest = planned(linear(rows, 48), rdus)
    (sent,) = [t for t in manifest.graphs[0].run_transfers if t.cause is Cause.COLLECTIVE]
    assert sent.bytes == 2 * (rdus - 1) * (rows * 8 // rdus) * 4
    assert sent.seconds == manifest.target.exchange_seconds(sent.bytes, 2 * (rdus - 1))


def test_one_rdu_has_no_figures_of_links_between_them() -> None:
    manifest = analyze(linear(5, 48))
    assert manifest.parallel is None
    assert manifest.target.rdu_link_latency_seconds == 0
    assert not [a for a in manifest.target.assumptions if a.name.startswith("rdu_link")]


def test_batch_sends_nothing_and_has_all_weights() -> None:
    manifest = planned(linear(8, 48), 4, "batch")
    assert not [t for t in manifest.graphs[0].run_transfers if t.cause is Cause.COLLECTIVE]
    assert sum(t.bytes for t in manifest.graphs[0].load_transfers) == 2 * 8 * 48 * 4
    (taken,) = [t for t in manifest.graphs[0].run_transfers if t.cause is Cause.INPUT]
    assert taken.bytes == 2 * 8 * 4


def test_report_of_a_decoder() -> None:
    heads, kept, width, rdus = 8, 4, 4, 4
    report = Report.from_manifest(planned(llama(2, heads, kept, width), rdus))
    cut = report.parallel
    assert cut is not None
    assert (cut.mode, cut.rdus, cut.fits) == ("weight", rdus, True)
    # Two layers, keys and values, one head of each RDU, float32.
    assert cut.cache_bytes_per_token == 2 * 2 * kept // rdus * width * 4
    room = cut.rooms[0]
    assert (room.tier, room.capacity_bytes) == ("hbm", 64_000_000_000)
    assert room.cache_tokens == (room.capacity_bytes - room.used_bytes) // cut.cache_bytes_per_token
    kinds = {one.kind: one for one in cut.exchanges}
    columns = heads * width
    assert kinds["all_reduce"].calls == 4
    assert kinds["all_reduce"].bytes == 4 * 3 * 2 * LENGTH * columns * 4  # sent directly
    assert kinds["all_gather"].bytes == 2 * LENGTH * columns * 3 // 4 * 4
    assert json.loads(report.to_json())["parallel"]["rdus"] == rdus
    assert "4 RDUs of sn40l" in report.headline


def test_a_cache_that_attention_widens_takes_what_the_ledger_measures(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    attention (float[4,3,5,8] q, bfloat16[4,3,7,8] k, bfloat16[4,3,7,6] v) => (float[4,3,5,6] y) {
        wide = Cast<to=1> (k)
        keys = Transpose<perm=[0,1,3,2]> (wide)
        scores = MatMul (q, keys)
        weights = Softmax<axis=-1> (scores)
        values = Cast<to=1> (v)
        y = MatMul (weights, values)
    }""")
    given = {
        "q": np.ones((4, 3, 5, 8), np.float32),
        "k": np.ones((4, 3, 7, 8), ml_dtypes.bfloat16),
        "v": np.ones((4, 3, 7, 6), ml_dtypes.bfloat16),
    }
    chips = {"n_chips": 2, "tensor_parallel": "batch"}
    with (
        convert(proto, tmp_path / "m.pef", **chips, sample=False, trial=False) as pef,
        ParallelDevice(pef, threads=1) as device,
    ):
        device.run(given)
        copies = device.devices[0].ledger.run()
        cut = pef.manifest.parallel
    assert cut is not None
    # Each of two RDUs reads seven tokens of two sequences, in 16 bits.
    assert cut.cache_bytes_per_token * 7 * 2 == sum(t.bytes for t in copies if t.symbol in "kv")
    assert cut.cache_bytes_per_token == 3 * (8 + 6) * 2


@pytest.mark.parametrize("rdus", [8, pytest.param(16, marks=pytest.mark.exhaustive)])
def test_llama_3_70b_without_weights(tmp_path: Path, rdus: int) -> None:
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_3_70B))
    command = [
        "-m",
        "samba_onnx",
        "analyze",
        str(folder),
        "--n-chips",
        str(rdus),
        "--json",
        "-",
        "-q",
    ]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    cut = json.loads(done.stdout)["parallel"]
    # 70.55 billion parameters in 2 bytes; norms are whole, of keys and values no less than a head is.
    layer = 2 * 8192 * 8192 + 3 * 8192 * 28672
    kept = 2 * 8192 * 1024 // min(rdus, 8)
    own = (80 * layer + 2 * 128256 * 8192) // rdus + 80 * kept + 161 * 8192
    assert cut["weight_bytes"] == 2 * own
    assert cut["fits"]
    assert cut["cache_bytes_per_token"] == 80 * 2 * 8 // min(rdus, 8) * 128 * 2
    assert {one["kind"]: one["calls"] for one in cut["exchanges"]} == {
        "all_gather": 1,
        "all_reduce": 160,
    }
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    assert most < 6, f"{most} GB"


def test_inner_values_of_several_rdus_are_not_compared(tmp_path: Path) -> None:
    proto = linear(5, 48)
    with convert(proto, tmp_path / "m.pef", n_chips=2) as pef:
        assert verify(proto, pef).passed
        with pytest.raises(UsageError, match=r"m\.pef is for 2 RDUs, .* convert without --n-chips"):
            compare_values(proto, pef)
