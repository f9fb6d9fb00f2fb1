"""``run`` on real PEFs: inputs from files, outputs into files, the ledger."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import ml_dtypes
import numpy as np
import pytest

from tests.cli.conftest import SambaPort, mixed_result
from tests.runtime.building import FROM, INPUT, OUTPUT, TO, Plan, build, fallback, section

DOCS = Path(__file__).parents[3] / "docs"
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 16)).astype(np.float32)
B = RNG.standard_normal(32).astype(np.float32)
# One float32 sum of 16 products in another order.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A folder with x and b in every format."""
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "both.npz", x=X, b=B)
    np.savez_compressed(tmp_path / "one.npz", anything=B)
    (tmp_path / "b.json").write_text(json.dumps(B.tolist()))
    return tmp_path


@pytest.mark.parametrize(
    "given",
    [
        ["x={}/x.npy", "b={}/b.json"],
        ["{}/both.npz"],
        ["x={}/both.npz", "b={}/one.npz"],
        ["x={}/both.npz", "b={}/both.npz"],
    ],
)
def test_run_writes_outputs(
    samba_port: SambaPort, mixed: Path, inputs: Path, given: list[str]
) -> None:
    options = [part for text in given for part in ("--input", text.format(inputs))]
    result = samba_port("run", mixed, *options, "--output", inputs / "y.npz")
    assert (result.status, result.err) == (0, "")
    with np.load(inputs / "y.npz") as outputs:
        assert list(outputs) == ["y"]
        np.testing.assert_allclose(outputs["y"], mixed_result(X, B), **CLOSE)


def test_a_single_output_as_npy(samba_port: SambaPort, mixed: Path, inputs: Path) -> None:
    target = inputs / "new" / "y.npy"
    assert samba_port("run", mixed, "-i", inputs / "both.npz", "-o", target).status == 0
    np.testing.assert_allclose(np.load(target), mixed_result(X, B), **CLOSE)


def test_outputs_can_be_fed_again(samba_port: SambaPort, tmp_path: Path) -> None:
    pef = build(
        tmp_path,
        Plan([fallback("s (bfloat16[3] x) => (bfloat16[3] y) { y = Identity(x) }")], ["x"], ["y"]),
    )
    pef.close()
    value = np.array([1, -2.5, 3e38], ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", value)
    for source, target in (("x.npy", "y.npy"), ("y.npy", "z.npy")):
        result = samba_port(
            "run", pef.path, "-i", f"x={tmp_path / source}", "-o", tmp_path / target
        )
        assert (result.status, result.err) == (0, "")
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy").view(ml_dtypes.bfloat16), value)


def test_the_ledger_holds_every_transfer(samba_port: SambaPort, mixed: Path, inputs: Path) -> None:
    ledger = inputs / "ledger.json"
    options = ("--random", 0, "--iterations", 3, "--ledger", ledger, "--json", "-")
    result = samba_port("run", mixed, *options)
    assert result.status == 0
    found = json.loads(ledger.read_text())
    assert [made["symbol"] for made in found["transfers"]] == ["w", *("x", "b", "h", "d", "y") * 3]
    document = json.loads(result.out)
    jsonschema.validate(document, json.loads((DOCS / "run.schema.json").read_text()))
    assert document["iterations"] == 3
    per_run = {
        (line["cause"], line["direction"]): (line["transfers"], line["bytes"])
        for line in document["transfers_per_run"]
    }
    assert per_run == {
        ("input", "host_to_rdu"): (2, 256 + 128),
        ("fallback", "rdu_to_host"): (1, 512),
        ("fallback", "host_to_rdu"): (1, 512),
        ("output", "rdu_to_host"): (1, 512),
    }
    assert [line["cause"] for line in document["transfers_at_load"]] == ["weight"]


def test_the_summary_shows_statistics(samba_port: SambaPort, mixed: Path, inputs: Path) -> None:
    result = samba_port("run", mixed, "--input", inputs / "both.npz")
    y = mixed_result(X, B).astype(np.float64)
    row = next(line.split() for line in result.out.splitlines() if line.split()[:1] == ["y"])
    assert row[1] == "float32"
    assert [float(cell) for cell in row[-3:]] == pytest.approx(
        [y.min(), y.mean(), y.max()], rel=1e-3
    )


def test_time_sections_measures_every_call(samba_port: SambaPort, mixed: Path) -> None:
    options = ("--random", 1, "--time-sections", "--repeat", 3, "--json", "-")
    document = json.loads(samba_port("run", mixed, *options).out)
    assert [(call["home"], call["modelled_on_rdu_seconds"]) for call in document["calls"]] == [
        ("rdu", 2e-6),
        ("cpu", None),
        ("rdu", 1e-6),
    ]
    for call in document["calls"]:
        assert call["executions"] == document["iterations"] == 3
        minimum = call["measured_on_this_cpu_minimum_seconds"]
        assert 0 < minimum <= call["measured_on_this_cpu_median_seconds"]
        seconds = {key for key in call if key.endswith("seconds")}
        assert len(seconds) == 4
        assert all("on_this_cpu" in key or "on_rdu" in key for key in seconds)


def test_time_by_call_names_the_machine_of_every_column(samba_port: SambaPort, mixed: Path) -> None:
    lines = samba_port("run", mixed, "--random", 1, "--time-sections").out.splitlines()
    title = next(place for place, line in enumerate(lines) if line.startswith("Time by call"))
    headings = ["this CPU, min", "this CPU, median", "RDU, modelled", "with launch"]
    assert re.split(r"\s{2,}", lines[title + 1].strip())[-4:] == headings
    # The fallback's time is the host's: nothing is modelled on the RDU.
    calls = lines[title + 2 : title + 5]
    assert [line.split()[-2] == "-" for line in calls] == [False, True, False]
    assert [line.split()[-1] for line in calls] == ["none", "-", "none"]


def test_random_fills_in_what_is_not_given(
    samba_port: SambaPort, mixed: Path, inputs: Path
) -> None:
    out = inputs / "y.npy"
    options = ("run", mixed, "-i", f"x={inputs / 'x.npy'}", "-o", out)
    assert samba_port(*options, "--random", 5).status == 0
    first = np.load(out)
    assert samba_port(*options, "--random", 5).status == 0
    np.testing.assert_array_equal(np.load(out), first)
    assert samba_port(*options, "--random", 6).status == 0
    assert not np.array_equal(np.load(out), first)
    # y - b does not depend on the random b: x was taken from the file.
    np.testing.assert_allclose(np.diff(first - mixed_result(X, B), axis=0), 0, atol=1e-5)


def dynamic(folder: Path) -> Path:
    pieces = [fallback("s (float[n, k] x, float[n] z) => (float[n, k] y) { y = Neg(x) }")]
    pef = build(folder, Plan(pieces, ["x", "z"], ["y"]))
    pef.close()
    return Path(pef.path)


@pytest.mark.parametrize(
    ("options", "shape"),
    [((), [2, 2]), (("--dim", "n=5"), [5, 2]), (("--input", "z={}/z.npy"), [3, 2])],
)
def test_dynamic_dimensions_of_random_inputs(
    samba_port: SambaPort, tmp_path: Path, options: tuple[str, ...], shape: list[int]
) -> None:
    np.save(tmp_path / "z.npy", np.zeros(3, np.float32))
    given = [text.format(tmp_path) for text in options]
    result = samba_port("run", dynamic(tmp_path), "--random", 0, *given, "--json", "-")
    assert json.loads(result.out)["outputs"][0]["shape"] == shape


def test_strings_and_sequences_are_written(samba_port: SambaPort, tmp_path: Path) -> None:
    text = """s (string[2] t, float[2] x) => (string[2] u, seq(float[2]) q) {
        u = Identity(t)
        q = SequenceConstruct(x, x)
    }"""
    pef = build(tmp_path, Plan([fallback(text)], ["t", "x"], ["u", "q"]))
    pef.close()
    (tmp_path / "t.json").write_text('["a", "ü"]')
    (tmp_path / "x.json").write_text("[1, 2]")
    given = [part for name in "tx" for part in ("-i", f"{name}={tmp_path / name}.json")]
    result = samba_port("run", pef.path, *given, "-o", tmp_path / "y.npz")
    assert (result.status, result.err) == (0, "")
    with np.load(tmp_path / "y.npz") as outputs:
        assert sorted(outputs) == ["q[0]", "q[1]", "u"]
        assert outputs["u"].tolist() == ["a", "ü"]
        assert outputs["q[1]"].tolist() == [1, 2]


def _npy(array: np.ndarray[Any, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def _npz(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


HUGE = b"\x93NUMPY\x01\x00v\x00" + (
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
)
BAD_FILES = {
    "pickled.npy": _npy(np.array([{}], object), allow_pickle=True),
    "empty.npy": b"",
    "text.npy": b"hello",
    "truncated.npy": _npy(X)[:-1],
    "huge.npy": HUGE,
    "huge.npz": _npz(x=HUGE),
    "version.npy": b"\x93NUMPY\x09\x00" + _npy(X)[8:],
    "code.npy": b"\x93NUMPY\x01\x00v\x00" + b"__import__('os').abort()".ljust(117) + b"\n",
    "shape.npy": _npy(X[:3]),
    "dtype.npy": _npy(X.astype(np.float64)),
    "raw.npy": _npy(np.zeros((4, 16), "V3")),
    "pickled.npz": _npz(x=_npy(np.array([{}], object), allow_pickle=True)),
    "no_zip.npz": b"PK\x03\x04",
    "empty.npz": _npz(),
    "others.npz": _npz(a=_npy(X), c=_npy(X)),
    "bad.json": b"[1, 2",
    "ragged.json": b"[[1, 2], [3]]",
    "object.json": b'{"a": 1}',
    "text.json": b'["a"]',
    "deep.json": b"[" * 100_000,
    "x.pt": b"PK",
    "x": b"",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_input_files(samba_port: SambaPort, mixed: Path, inputs: Path, name: str) -> None:
    (inputs / name).write_bytes(BAD_FILES[name])
    result = samba_port("run", mixed, "--random", 0, "-i", f"x={inputs / name}")
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith("samba-port run: error: ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), ["x tensor(float)[4, 16]", "b tensor(float)[32]", "--random"]),
        (("--input", "x={}/x.npy"), ["b tensor(float)[32]"]),
        (("--input", "z={}/x.npy"), ["'z'", "x tensor(float)[4, 16]"]),
        (("--input", "x"), ["NAME=FILE"]),
        (("--input", "x={}/x.npy", "--input", "x={}/x.npy"), ["twice"]),
        (("--input", "x={}/missing.npy"), ["missing.npy"]),
        (("--input", "x={}"), []),
        (("--random", "-1"), ["--random"]),
        (("--random", "0", "--iterations", "0"), ["--iterations"]),
        (("--random", "0", "--threads", "0"), ["--threads"]),
        (("--random", "0", "--output", "y.txt"), [".npz"]),
        (("--random", "0", "--output", "{}/model.pef"), ["overwrite"]),
        (("--input", "x={}/x.npy", "--output", "{}/x.npy"), ["overwrite"]),
        (("--random", "0", "--ledger", "{}/l", "--json", "{}/l"), ["overwrite"]),
        (("--random", "0", "--ledger", "{}"), []),
    ],
)
def test_wrong_usage(
    samba_port: SambaPort, mixed: Path, inputs: Path, options: tuple[str, ...], words: list[str]
) -> None:
    before = sorted(inputs.rglob("*"))
    result = samba_port("run", mixed, *(text.format(inputs) for text in options))
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    for word in words:
        assert word in result.err
    assert sorted(inputs.rglob("*")) == before


def test_npy_for_several_outputs_is_refused_before_running(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    text = "s (float[2] x) => (float[2] y, float[2] z) { y = Neg(x) z = Abs(x) }"
    moves = [("x", TO, INPUT, 0), ("y", FROM, OUTPUT, 0), ("z", FROM, OUTPUT, 0)]
    pef = build(tmp_path, Plan([section(text)], ["x"], ["y", "z"], moves))
    pef.close()
    result = samba_port("run", pef.path, "--random", 0, "-o", tmp_path / "y.npy")
    assert result.status == 2
    assert "2 outputs" in result.err
