"""The commands of the manual one after the other, with the real compiler and emulator."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from tests.cli.conftest import SambaPort

DOCS = Path(__file__).parents[2] / "docs"
TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
net (float[batch, 16] x) => (float[batch, 4] y, float[batch, 4] doubled) {
  hidden = MatMul(x, w)
  positive = Relu(hidden)
  bent = Atan(positive)
  y = MatMul(bent, v)
  doubled = Add(y, y)
}
"""


def write_model(path: Path, seed: int = 0) -> onnx.ModelProto:
    """Write a model with an operator in its middle that no RDU runs."""
    model = parser.parse_model(TEXT)
    generator = np.random.default_rng(seed)
    arrays = {
        "w": generator.standard_normal((16, 32)).astype(np.float32),
        "v": generator.standard_normal((32, 4)).astype(np.float32),
    }
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in arrays.items()
    )
    onnx.save(model, path)
    return model


@pytest.fixture
def net(tmp_path: Path) -> Path:
    write_model(tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_the_whole_way(samba_port: SambaPort, net: Path) -> None:
    pef, report, ledger = (net.with_suffix(suffix) for suffix in (".pef", ".json", ".ledger"))
    result = samba_port("convert", net, "--dim", "batch=8", "--json", report)
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("net.onnx [batch 8] → sn40l: ")
    assert f"Wrote {pef}" in result.out

    document = json.loads(report.read_text())
    jsonschema.validate(document, json.loads((DOCS / "report.schema.json").read_text()))
    assert document["coverage"]["cpu_nodes"] == 1
    assert document["fallbacks"][0]["operators"] == {"Atan": 1}
    assert len(document["boundaries"]) == 2

    inspected = json.loads(samba_port("inspect", pef, "--verify", "--json", "-").out)
    assert inspected["headline"] == document["headline"]
    assert inspected["graphs"] == document["graphs"]

    x = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
    np.save(net.with_suffix(".npy"), x)
    outputs = net.with_suffix(".npz")
    given = ("--input", f"x={net.with_suffix('.npy')}", "--output", outputs, "--ledger", ledger)
    assert samba_port("run", pef, *given).status == 0
    expected = ReferenceEvaluator(str(net)).run(None, {"x": x})
    with np.load(outputs) as found:
        for name, value in zip(("y", "doubled"), expected, strict=True):
            # Sums of 32 terms, some of which cancel, in another order.
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-3)

    made = [
        copy for copy in json.loads(ledger.read_text())["transfers"] if copy["call"] is not None
    ]
    planned = document["graphs"][0]["run_transfers"]
    assert [(copy["symbol"], copy["bytes"], copy["cause"]) for copy in made] == [
        (copy["symbol"], copy["bytes"], copy["cause"]) for copy in planned
    ]

    assert samba_port("verify", net, pef).status == 0
    assert samba_port("verify", pef).status == 0


def test_another_model_with_the_same_interface_is_a_no(
    samba_port: SambaPort, net: Path, tmp_path: Path
) -> None:
    write_model(tmp_path / "other.onnx", seed=1)
    assert samba_port("convert", net, "--no-sample", "-q").status == 0
    result = samba_port("verify", tmp_path / "other.onnx", tmp_path / "net.pef")
    assert (result.status, result.err) == (1, "")
    assert "2 of 2 outputs differ" in result.out


def test_dynamic_models_convert_and_run(samba_port: SambaPort, net: Path) -> None:
    result = samba_port("convert", net, "--keep-dynamic")
    assert result.status == 0
    assert "--dim batch=" in result.out
    pef = net.with_suffix(".pef")
    for size in (1, 5):
        done = samba_port("run", pef, "--random", 0, "--dim", f"batch={size}", "--json", "-")
        assert json.loads(done.out)["outputs"][0]["shape"] == [size, 4]


def test_a_size_that_nobody_states_is_one_and_is_said_to_be(
    samba_port: SambaPort, net: Path
) -> None:
    result = samba_port("convert", net)
    assert result.status == 0
    (line,) = [line for line in result.out.splitlines() if "is taken as 1" in line]
    assert "--dim batch=1" in line
    assert "--keep-dynamic" in line
    pef = net.with_suffix(".pef")
    done = samba_port("run", pef, "--random", 0, "--json", "-")
    assert json.loads(done.out)["outputs"][0]["shape"] == [1, 4]
    refused = samba_port("run", pef, "--random", 0, "--dim", "batch=5")
    assert refused.status == 2
    assert "--dim batch=1,5" in refused.err
    assert samba_port("verify", net, pef).status == 0


def test_a_graph_for_each_size(samba_port: SambaPort, net: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    result = samba_port("convert", net, "--dim", "batch=1,8", "--json", report)
    assert result.status == 0
    assert "2 graphs, of which the inputs choose one" in result.out
    document = json.loads(report.read_text())
    jsonschema.validate(document, json.loads((DOCS / "report.schema.json").read_text()))
    sizes = [(bound["graph"], bound["size"]) for bound in document["bound_dimensions"]]
    assert sizes == [("batch=1", 1), ("batch=8", 8)]
    pef, outputs = net.with_suffix(".pef"), tmp_path / "y.npz"
    for batch in (8, 1):
        x = np.random.default_rng(1).standard_normal((batch, 16)).astype(np.float32)
        np.save(tmp_path / "x.npy", x)
        given = ("--input", f"x={tmp_path / 'x.npy'}", "--output", outputs)
        assert samba_port("run", pef, *given).status == 0
        expected = ReferenceEvaluator(str(net)).run(None, {"x": x})
        with np.load(outputs) as found:
            # Sums of 32 terms, some of which cancel, in another order.
            np.testing.assert_allclose(found["y"], expected[0], rtol=1e-4, atol=1e-3)
        drawn = samba_port("run", pef, "--random", 0, "--dim", f"batch={batch}", "--json", "-")
        assert json.loads(drawn.out)["outputs"][0]["shape"] == [batch, 4]
        assert samba_port("verify", net, pef, "--input", f"x={tmp_path / 'x.npy'}").status == 0
    np.save(tmp_path / "x.npy", np.zeros((3, 16), np.float32))
    refused = samba_port("run", pef, "--input", f"x={tmp_path / 'x.npy'}")
    assert refused.status == 2
    assert "no graph of the PEF takes x [3, 16]; it has batch=1 (x tensor" in refused.err
    assert samba_port("verify", net, pef).status == 0
    assert samba_port("verify", pef).status == 0
    assert samba_port("inspect", pef, "--verify").status == 0


@pytest.mark.parametrize("given", ["{}.npy", "x={}.npy", "{}.npz", "x={}.npz"])
def test_the_shape_of_a_sample_input_is_taken(
    samba_port: SambaPort, net: Path, tmp_path: Path, given: str
) -> None:
    array = np.zeros((3, 16), np.float32)
    np.save(tmp_path / "sample.npy", array)
    np.savez(tmp_path / "sample.npz", x=array)
    option = given.format(tmp_path / "sample")
    result = samba_port("analyze", net, "--sample-input", option, "--json", "-")
    (graph,) = json.loads(result.out)["graphs"]
    assert graph["inputs"][0]["shape"] == [3, 16]


def test_sample_inputs_that_say_nothing_are_refused(
    samba_port: SambaPort, net: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "sample.npy", np.zeros((3, 16), np.float32))
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    sample = f"x={tmp_path / 'sample.npy'}"
    for options, message in (
        (("--sample-input", tmp_path / "sample.txt"), "expected INPUT=FILE.npy"),
        (("--sample-input", f"={tmp_path / 'sample.npy'}"), "expected INPUT=FILE.npy"),
        (("--sample-input", f"x={tmp_path / 'two.npz'}"), "has no array 'x'"),
        (("--sample-input", sample, "--sample-input", sample), "given twice"),
        (("--sample-input", f"z={tmp_path / 'sample.npy'}"), "no input 'z'"),
        (("--sample-input", sample, "--dim", "batch=4"), "two sizes, 4 and 3"),
        (("--sample-input", sample, "--input-shape", "x=4,16"), "and 4,16 in --input-shape"),
    ):
        result = samba_port("analyze", net, *options)
        assert result.status == 2, options
        assert message in result.err, result.err


def test_limits_on_a_real_model(samba_port: SambaPort, net: Path) -> None:
    assert samba_port("analyze", net, "--dim", "batch=8", "--fail-on-fallback").status == 1
    assert samba_port("analyze", net, "--dim", "batch=8", "--max-fallbacks", 1).status == 0


@pytest.mark.parametrize("content", [b"", b"hello", b"\x08", b"\x00" * 100, b"PK\x03\x04"])
@pytest.mark.parametrize("command", ["convert", "analyze", "inspect", "run", "verify"])
def test_what_is_no_model(
    samba_port: SambaPort, tmp_path: Path, command: str, content: bytes
) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(content)
    result = samba_port(command, path)
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert "internal error" not in result.err
    assert "odd.onnx" in result.err
    assert sorted(tmp_path.iterdir()) == [path]
