"""Profiles of the host's CPU: what they are read from, and what they make of a node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx.shape_inference
import onnx_ir as ir
import pytest

from samba_onnx.errors import TargetError
from samba_onnx.facts.defaults import DEFAULT_HOST
from samba_onnx.passes.planning.roles import Roles, known_at_load
from samba_onnx.passes.timing import hosts
from samba_onnx.passes.timing.hosts import figures, host_seconds, host_text, load_host, work_seconds
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
        ("1e-02", "0.0", "call_seconds.value: Input should be greater than or equal to 0"),
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


@pytest.mark.parametrize("path", ["nowhere.toml", "no\0where.toml"])
def test_a_profile_that_does_not_exist_says_how_to_make_one(path: str) -> None:
    with pytest.raises(TargetError, match="samba-port calibrate --output FILE"):
        load_host(path)


def _refusal(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(TargetError) as caught:
        load_host(path)
    assert caught.value.path == str(path)
    return str(caught.value)


def test_a_refusal_names_the_file_the_key_and_what_is_wrong(tmp_path: Path) -> None:
    path, text = tmp_path / "own.toml", host_text(ROUND, "by hand")
    start = f"host file {path}: "
    assert _refusal(path, "own = 1\n" + text) == f"{start}own: unknown key"
    assert _refusal(path, text.replace("float32", "float33")) == (
        f"{start}file: unknown data type 'float33' in peak_flops"
    )
    assert _refusal(path, text.replace("call_seconds = ", "call_seconds")).startswith(
        f"{start}not valid TOML: Expected '=' after a key"
    )
    with pytest.raises(TargetError) as caught:
        load_host(tmp_path)
    assert " a host file" in str(caught.value)


def test_a_profile_may_be_so_large_and_no_larger(tmp_path: Path) -> None:
    path, text = tmp_path / "own.toml", host_text(ROUND, "by hand")
    most = 1 << 16
    path.write_text(text + "#" * (most - len(text)))
    assert load_host(path) == ROUND
    assert _refusal(path, text + "#" * (most + 1 - len(text))) == (
        f"host file {path}: larger than 65536 bytes, so no host file"
    )


def test_every_figure_has_a_unit() -> None:
    assert figures(ROUND) == {
        "peak_flops.float32": (1e9, "operations/s"),
        "peak_flops.int8": (4e9, "operations/s"),
        "bytes_per_second": (1e8, "bytes/s"),
        "copy_bytes_per_second": (1e7, "bytes/s"),
        "node_seconds": (1e-3, "s"),
        "call_seconds": (1e-2, "s"),
    }
    default = Path(hosts.__file__).with_name("default_host.toml")
    units = {each.name: each.unit for each in load_host(default).assumptions}
    assert units["host.peak_flops.float32"] == "operations/s"
    assert units["host.node_seconds"] == "s"


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


def test_a_result_that_nobody_reads_takes_no_memory_and_another_domain_is_unknown() -> None:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([100, 100]))
    node = ir.node("Relu", [x], num_outputs=2)
    for value, name in zip(node.outputs, ("y", ""), strict=True):
        value.name, value.type, value.shape = name, x.type, x.shape
    node.outputs[1].shape = None
    assert host_seconds(node, ROUND) == pytest.approx(1e-3 + 8e-4, rel=1e-12)
    node.domain = "com.example"
    assert host_seconds(node, ROUND) is None


def test_what_draws_numbers_or_is_unknown_is_not_computed_at_load() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, int64 i = {0}> {
        a = Neg(w)
        r = RandomUniformLike(w)
        b = com.example.Neg(w)
        s = SequenceConstruct(w)
        t = Abs(a)
        u = Add(t, x)
        y = Add(u, r)
        }"""
    )
    for node in model.graph:
        for value in node.outputs:
            value.type = ir.TensorType(ir.DataType.FLOAT)
    late = known_at_load(model.graph, Roles.of(model.graph))
    assert {node.outputs[0].name for node in late} == {"a", "t"}


def test_data_types_have_rates_of_their_own_and_else_that_of_float32() -> None:
    assert work_seconds(ROUND, 4000, "int8", 0, copies=False) == pytest.approx(1e-3 + 1e-6)
    assert work_seconds(ROUND, 4000, "bfloat16", 0, copies=False) == pytest.approx(1e-3 + 4e-6)
    assert work_seconds(replace(ROUND, node_seconds=0.0), 0, "", 0, copies=True) == 0.0
