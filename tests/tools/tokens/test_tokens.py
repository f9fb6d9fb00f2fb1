"""``tokens``: how fast a language model answers, held against its parts and against arithmetic."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from samba_onnx.compiling.options import CompileOptions
from samba_onnx.tools.tokens.text_generators import GenerationSizes, OnnxGenerator
from tests.cli.conftest import SambaPort

LAYERS, HEADS, KEPT, WIDTH = 2, 4, 2, 16
CONFIGURATION: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": HEADS * WIDTH,
    "intermediate_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEPT,
    "max_position_embeddings": 64,
    "dtype": "bfloat16",
}


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return configured(tmp_path / "llama")


def configured(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGURATION | changes))
    return folder


def found(samba_port: SambaPort, model: Path, *arguments: object) -> dict[str, Any]:
    done = samba_port("tokens", model, *arguments, "--json", "-")
    assert (done.status, done.err) == (0, "")
    document: dict[str, Any] = json.loads(done.out)
    return document


def test_rates_follow_from_times_and_the_cache_from_the_configuration(
    samba_port: SambaPort, llama: Path
) -> None:
    one = found(samba_port, llama, "--prompt", 16, "--context", 32)
    # Keys and values of two bytes, in every layer, of every head that is kept.
    assert one["cache_bytes_per_token"] == 2 * LAYERS * KEPT * WIDTH * 2
    assert one["cache_bytes"] == 32 * one["cache_bytes_per_token"]
    assert one["tokens_per_second"] == pytest.approx(1 / one["token_seconds"])
    assert one["prompt_tokens_per_second"] == pytest.approx(16 / one["first_token_seconds"])
    for phase, name in (("first", "first_token_seconds"), ("each", "token_seconds")):
        assert one[phase]["seconds"] == one[name]
        assert (one[phase]["cpu_nodes"], one[phase]["unmodelled_cpu_nodes"]) == (0, 0)
    several = found(samba_port, llama, "--prompt", 16, "--context", 32, "--batch", 4)
    assert several["cache_bytes_per_token"] == one["cache_bytes_per_token"]
    assert several["cache_bytes"] == 4 * one["cache_bytes"]
    # Weights are read once for all texts, so that four take less than four times as long.
    assert one["token_seconds"] <= several["token_seconds"] < 4 * one["token_seconds"]
    assert several["tokens_per_second"] > one["tokens_per_second"]


def test_a_prompt_computes_what_its_tokens_do(samba_port: SambaPort, llama: Path) -> None:
    """Products with weights grow with the tokens of a prompt, attention with their square; the head reads the last."""
    lengths = (8, 16, 24)
    least, middle, most = (
        found(samba_port, llama, "--prompt", length, "--context", 32)["first"]["flops"]
        for length in lengths
    )
    square = (most - 2 * middle + least) / (2 * 8 * 8)
    linear = (middle - least) / 8 - square * (8 + 16)
    size = HEADS * WIDTH
    weights = LAYERS * 2 * (2 * size * size + 2 * size * KEPT * WIDTH + 3 * size * 128)
    # What is not a product, as norms, rotations and softmax, comes on top: a fifth in a model as small as this.
    assert weights <= linear < 1.25 * weights
    attention = LAYERS * 2 * 2 * size
    assert attention <= square < 1.25 * attention
    # A token attends to every row that there is room for.
    near, far = (
        found(samba_port, llama, "--prompt", 8, "--context", rows)["each"]["flops"]
        for rows in (32, 64)
    )
    assert attention * 32 <= far - near < 1.25 * attention * 32


def test_the_first_line_and_the_table(samba_port: SambaPort, llama: Path) -> None:
    quiet = samba_port("tokens", llama, "-q")
    assert quiet.status == 0
    # Sizes that nobody stated: what the configuration has positions for, and half of it.
    assert quiet.out.startswith("llama [batch 1, prompt 32, context 64] → sn40l: ")
    assert " to the first token, then " in quiet.out
    assert "the cache keeps 256 B per token" in quiet.out
    assert quiet.out.count("\n") == 1
    whole = samba_port("tokens", llama)
    assert whole.out.startswith(quiet.out)
    assert "a prompt of each text" in whole.out
    assert len(whole.out.splitlines()) <= 15


def test_windows_are_said_to_be_planned_as_whole(samba_port: SambaPort, tmp_path: Path) -> None:
    mistral = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    folder = configured(tmp_path / "mistral", **mistral, sliding_window=8)
    (note,) = found(samba_port, folder)["notes"]
    assert note.startswith("layers with a window of 8 tokens")
    qwen = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 8}
    unused = configured(tmp_path / "qwen", **qwen, use_sliding_window=False)
    assert found(samba_port, unused)["notes"] == []


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({}, ["--context", 65], "65 tokens are more than the 64 that llama has positions for"),
        ({}, ["--prompt", 40, "--context", 32], "a prompt of 40 tokens does not fit"),
        ({"model_type": "vit"}, [], "transformers has no causal language model"),
        ({"model_type": "mamba"}, [], "does not keep rows of keys and values"),
        # Its state is where no cache asks for it.
        ({"model_type": "rwkv", "attention_hidden_size": 64}, [], "no layer keeps any"),
    ],
)
def test_what_cannot_be_planned_is_said(
    samba_port: SambaPort,
    tmp_path: Path,
    changes: dict[str, Any],
    arguments: list[object],
    words: str,
) -> None:
    done = samba_port("tokens", configured(tmp_path / "llama", **changes), *arguments)
    assert done.status == 2
    assert words in done.err
    assert len(done.err.splitlines()) <= 2


def test_a_factory_has_no_cache_that_is_known(samba_port: SambaPort) -> None:
    done = samba_port("tokens", "package.module:factory")
    assert done.status == 2
    assert "does not say what its cache is" in done.err


def cached(path: Path, batch: str | int = "batch", past: str | int = "past_length") -> Path:
    """An attention of one head whose keys are a cache, as exporters write it."""
    size = 8
    value = helper.make_tensor_value_info
    inputs = [
        value("x", TensorProto.FLOAT, [batch, "sequence_length", size]),
        value("past_key", TensorProto.FLOAT, [batch, past, size]),
    ]
    outputs = [
        value("y", TensorProto.FLOAT, [batch, "sequence_length", size]),
        value("present_key", TensorProto.FLOAT, [batch, "total_length", size]),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["k"]),
        helper.make_node("Concat", ["past_key", "k"], ["present_key"], axis=1),
        helper.make_node("Transpose", ["present_key"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"]),
        helper.make_node("MatMul", ["shares", "present_key"], ["y"]),
    ]
    weight = numpy_helper.from_array(np.eye(size, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, path)
    return path


def test_an_onnx_model_gives_and_takes_its_cache(samba_port: SambaPort, tmp_path: Path) -> None:
    document = found(
        samba_port, cached(tmp_path / "m.onnx"), "--batch", 2, "--prompt", 8, "--context", 32
    )
    assert document["cache_bytes_per_token"] == 8 * 4
    assert document["cache_bytes"] == 2 * 32 * 8 * 4
    # Of the last token: x, the cache before it, y and the cache behind it.
    assert document["each"]["transfer_bytes"] == 2 * 4 * 8 * (1 + 31 + 1 + 32)
    assert document["first"]["transfer_bytes"] == 2 * 4 * 8 * (8 + 1 + 8 + 9)
    assert document["notes"][0].startswith("the cache is given to every run")


def test_nodes_that_fall_back_are_named(samba_port: SambaPort, tmp_path: Path) -> None:
    path = cached(tmp_path / "m.onnx")
    model = onnx.load(path)
    # No RDU has it, and no rule writes it otherwise.
    next(node for node in model.graph.node if node.op_type == "Softmax").op_type = "Hardmax"
    onnx.save(model, path)
    document = found(samba_port, path, "--prompt", 8, "--context", 32)
    assert document["each"]["fallbacks"]["Hardmax"] == 1
    for name in ("prompt", "token"):
        assert any(note.startswith(f"of a {name}'s program ") for note in document["notes"])


def test_both_plans_are_those_of_analyze_at_these_sizes(tmp_path: Path) -> None:
    from samba_onnx.compiling.compiler import analyze

    path = cached(tmp_path / "m.onnx")
    source, options = OnnxGenerator(str(path)), CompileOptions()
    sizes = GenerationSizes(batch=2, prompt=8, context=32)
    for planned, read, past in (
        (source.prompt(sizes, options), 8, 1),
        (source.token(sizes, options), 1, 31),
    ):
        expected = analyze(path, dims={"batch": 2, "sequence_length": read, "past_length": past})
        assert planned.sections == expected.sections
        assert planned.graphs == expected.graphs


@pytest.mark.parametrize(
    ("sizes", "words"),
    [({"past": 4}, "there is no cache that grows with a text"), ({"past": ""}, "has no name")],
)
def test_an_onnx_model_without_a_cache_is_refused(
    samba_port: SambaPort, tmp_path: Path, sizes: dict[str, Any], words: str
) -> None:
    done = samba_port("tokens", cached(tmp_path / "m.onnx", **sizes))
    assert done.status == 2
    assert words in done.err


def test_a_published_model_takes_what_its_published_row_was_modelled_to(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    """The figures that the model of time is judged by, and those of the command, are of one program."""
    from benchmarks.fidelity import seconds
    from benchmarks.fidelity_programs import LLAMAS, planned
    from benchmarks.published import published_rows

    layers = {"num_hidden_layers": 2}
    published = next(one for one in published_rows() if one.id == "sn40l/llama/token/llama-3-8b")
    # Two of its layers are as good as 32, and take a second to plan.
    row = dataclasses.replace(published, sizes={**published.sizes, **layers})
    folder = configured(tmp_path / "llama", **LLAMAS["llama-3-8b"] | layers)
    options = ("--target", row.profile, "--level", row.level, "--n-chips", row.rdus)
    document = found(
        samba_port, folder, *options, "--precision", "bf16", "--context", row.sizes["rows"]
    )
    parts = document["each"]["parts"]
    on_rdu = sum(took for name, took in parts.items() if name not in ("host_transfers", "cpu"))
    # A configuration from a file differs in a few bytes of constants.
    assert on_rdu == pytest.approx(seconds(row, planned(row).manifest), rel=1e-6)
