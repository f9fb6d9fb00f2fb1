"""Steps: where weights come from, what they cost in memory, and what failures look like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from samba_onnx.errors import ExecutionError, PefFormatError
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine.assembly import merge_stages
from tests.runtime.building import HEADER, Plan, build, fallback, parser, section


def test_failing_section_is_named_and_silent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(
        [
            section("g (int64[2] i) => (int64[2] j) { j = Add(i, i) }"),
            section("g (float[4] x, int64[2] j) => (float[2] y) { y = Gather(x, j) }"),
            fallback("h (float[2] y) => (float[2] z) { z = Abs(y) }"),
        ],
        ["x", "i"],
        ["z"],
    )
    x = np.arange(4, dtype=np.float32)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        with pytest.raises(ExecutionError, match=r"sections 0 \(g_0\) to 1 \(g_1\) failed: Gather"):
            device.run({"x": x, "i": np.array([0, 3])})
        assert device.run({"i": np.array([0, 1])})["z"].tolist() == [0, 2]
    assert capfd.readouterr().err == ""


def test_weights_beyond_the_inline_limit_are_shared_by_name(tmp_path: Path) -> None:
    """Two merged sections hold one copy of a weight that both of them name."""
    weight = np.eye(4, dtype=np.float32) * 2
    plan = Plan(
        [
            section("a (float[4,4] x, float[4,4] w) => (float[4,4] a) { a = MatMul(x, w) }"),
            section("b (float[4,4] a, float[4,4] w) => (float[4,4] y) { y = MatMul(w, a) }"),
        ],
        ["x"],
        ["y"],
        weights={"w": weight},
    )
    with build(tmp_path, plan) as pef:
        models = [pef.stage_model(0), pef.stage_model(1)]
        merged = merge_stages(models, ["x"], ["y"])
        assert [tensor.name for tensor in merged.graph.initializer] == ["w"]
        assert [value.name for value in merged.graph.value_info] == ["a"]
        with Device(pef) as device:
            x = np.arange(16, dtype=np.float32).reshape(4, 4)
            np.testing.assert_array_equal(device.run({"x": x})["y"], 4 * x)
            assert device.memory.usage()[1].used == 4 * 64


def test_mapped_weights_cost_no_memory(tmp_path: Path) -> None:
    """64 MB of weights in mapped mode stay out of the process's private memory."""
    size = 1 << 12
    plan = Plan(
        [
            section(
                f"a (float[1,{size}] x, float[{size},{size}] w) => (float[1,{size}] y) "
                "{ y = MatMul(x, w) }"
            )
        ],
        ["x"],
        ["y"],
        weights={"w": np.zeros((size, size), np.float32)},
    )
    with build(tmp_path, plan) as pef:
        before = private_bytes()
        with Device(pef, prepack=False, threads=1) as device:
            device.run({"x": np.ones((1, size), np.float32)})
            assert private_bytes() - before < 32 << 20
        with Device(pef, prepack=True, threads=1) as device:
            device.run({"x": np.ones((1, size), np.float32)})
            # The test can tell: prepacking copies the weight.
            assert private_bytes() - before > 48 << 20


def test_stages_of_two_operator_sets_cannot_be_merged() -> None:
    models = [
        parser.parse_model(HEADER.replace("21", version) + text)
        for version, text in (
            ("21", "a (float[4] x) => (float[4] a) { a = Abs(x) }"),
            ("20", "b (float[4] a) => (float[4] y) { y = Abs(a) }"),
        )
    ]
    with pytest.raises(PefFormatError, match=r"versions 21 and 20 of .* 'ai.onnx'"):
        merge_stages(models, ["x"], ["y"])
    with pytest.raises(PefFormatError, match="'q', which its stage's ONNX model does not have"):
        merge_stages(models[:1], ["q"], ["a"])


def test_names_and_metadata_of_nodes() -> None:
    model = parser.parse_model(HEADER + "a (float[4] x) => (float[4] a) { a = Abs(x) }")
    model.graph.node[0].name = "kept"
    model.graph.node[0].metadata_props.add(key="trace", value="long")
    (node,) = merge_stages([model], ["x"], ["a"]).graph.node
    assert (node.name, len(node.metadata_props)) == ("kept", 0)
    assert len(model.graph.node[0].metadata_props) == 1


def private_bytes() -> int:
    """Memory of this process that no file stands behind."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the system does not tell")
