"""Profiles of the host's CPU: what they are read from, and what they make of a node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx.shape_inference
import onnx_ir as ir
import pytest

from samba_onnx.errors import TargetError
from samba_onnx.passes.planning.host_costs import host_seconds
from samba_onnx.passes.planning.hosts import DEFAULT_HOST, figures, host_text, load_host
from samba_onnx.pef.host_summary import HostSummary
from tests.passes.planning.plan_samples import parse

ROUND = HostSummary("round", {"float32": 1e9, "int8": 4e9}, 1e8, 1e7, 1e-3, 1e-2)


def test_every_figure_of_the_default_host_is_an_assumption() -> None:
    host = load_host()

    assert host.name == DEFAULT_HOST
    assert {f"host.{name}" for name in figures(host)} == {each.name for each in host.assumptions}
    assert all(each.note and each.value > 0 for each in host.assumptions)


def test_a_profile_that_was_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(host_text(ROUND, "by hand"))

    assert load_host(path) == ROUND
    assert load_host(ROUND) is ROUND


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("call_seconds", "calls", r"(call_seconds: Field required|calls: unknown key)"),
        ("1e-02", "0.0", "call_seconds.value: Input should be greater than 0"),
        ("float32", "float33", "unknown data type 'float33' in peak_flops"),
        ("float32", "float64", "peak_flops has no float32"),
        ("name = ", "name ", "not valid TOML"),
        ('"measured"', '"published"', "evidence"),
    ],
)
def test_what_is_wrong_with_a_profile_is_said_by_its_key(
    old: str, new: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.toml"
    text = host_text(ROUND, "by hand").replace("0.01,", "1e-02,")
    assert old in text
    path.write_text(text.replace(old, new))

    with pytest.raises(TargetError, match=problem) as caught:
        load_host(path)
    assert str(path) in str(caught.value)


def test_a_profile_that_does_not_exist_says_how_to_make_one() -> None:
    with pytest.raises(TargetError, match="samba-port calibrate --output FILE"):
        load_host("nowhere.toml")


@pytest.mark.parametrize(
    ("node", "seconds"),
    [
        # 2 * 100**3 operations at 1e9 per second, more than 120,000 bytes at 1e8.
        ("MatMul(x, x)", 2e-3),
        # 80,000 bytes at 1e8 per second, more than 10,000 operations at 1e9.
        ("Relu(x)", 8e-4),
        # As many bytes, at the rate of copies.
        ("Transpose(x)", 8e-3),
        # Nothing is read but a shape.
        ("Flatten(x)", 0.0),
        ("com.example.Own(x)", None),
    ],
)
def test_a_node_takes_its_start_and_the_longer_of_work_and_memory(
    node: str, seconds: float | None
) -> None:
    text = f"g (float[100,100] x) => (float[100,100] y) {{ y = {node} }}"
    model = ir.from_proto(onnx.shape_inference.infer_shapes(ir.to_proto(parse(text))))

    found = host_seconds(model.graph[0], ROUND)

    assert found == (None if seconds is None else pytest.approx(1e-3 + seconds, rel=1e-12))


def test_data_types_have_rates_of_their_own_and_else_that_of_float32() -> None:
    assert ROUND.node_time(4000, "int8", 0, copies=False) == pytest.approx(1e-3 + 1e-6)
    assert ROUND.node_time(4000, "bfloat16", 0, copies=False) == pytest.approx(1e-3 + 4e-6)
    assert replace(ROUND, node_seconds=0.0).node_time(0, "", 0, copies=True) == 0.0
