"""What a device does between the mini-batches of a run: slices, argins, refusals."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from samba_onnx.compiling.compiler import compile_programs
from samba_onnx.errors import AnomalyError, InputError
from samba_onnx.pef import Pef
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import ArginSpec, Part, Program
from samba_onnx.runtime.accounting import check_plan
from samba_onnx.runtime.device import Device

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'
TEXT = """g (float[2,3] x, float[3] sum, float rate) => (float[2,3] y, float first, float[3] next)
<int64[1] axis = {0}> { y = Mul (x, rate)  next0 = ReduceSum <keepdims=0> (y, axis)  next = Add (sum, next0)
  first = ReduceMax <keepdims=0> (y) }"""
X = np.arange(24, dtype=np.float32).reshape(8, 3)
BATCHES = 4


def program() -> Program:
    """A sum of rows that stays on the device, scaled by an argin."""
    model = ir.from_proto(onnx.parser.parse_model(HEADER + TEXT))
    return Program(
        "g",
        (Part(SectionType.FWD, model),),
        ("x",),
        ("y", "first"),
        {"sum": SymbolKind.BUFFER, "next": SymbolKind.BUFFER},
        {"next": "sum"},
        (ArginSpec("rate", "tensor(float)", 1.0),),
        spatial_batches=BATCHES,
    )


@pytest.fixture(scope="module")
def pef(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pef]:
    with compile_programs([program()], tmp_path_factory.mktemp("pef") / "g.pef") as opened:
        yield opened


def loaded(pef: Pef, **options: Any) -> Device:
    device = Device(pef, threads=1, **options)
    device.load({"sum": np.zeros(3, np.float32)})
    return device


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
def test_mini_batches_are_cut_and_put_together(pef: Pef, engine: str) -> None:
    with loaded(pef, engine=engine) as device:
        made = device.run({"x": X}, argins={"rate": 2.0})
        np.testing.assert_array_equal(made["y"], 2 * X)
        np.testing.assert_array_equal(made["first"], [10, 22, 34, 46])
        np.testing.assert_array_equal(device.read("sum"), 2 * X.sum(0))
        np.testing.assert_array_equal(device.read("x"), X)


def test_the_ledger_is_the_plan(pef: Pef) -> None:
    with loaded(pef) as device:
        device.run({"x": X})
        device.run({"x": X})
        check_plan(device.ledger, pef.manifest.graphs[0])
        assert [move.bytes for move in device.ledger.run()] == [96, 96, 16]


def test_an_argin_may_be_one_number_for_each(pef: Pef) -> None:
    rates = [1.0, 0.0, 2.0, 10.0]
    with loaded(pef) as device:
        made = device.run({"x": X}, argins={"rate": rates})
        np.testing.assert_array_equal(made["y"], np.repeat(rates, 2)[:, None] * X)
        # The last one stays, as every argin does.
        np.testing.assert_array_equal(device.run({"x": X}, ["y"])["y"], 10 * X)


def test_an_argin_of_another_number_of_numbers_changes_nothing(pef: Pef) -> None:
    with loaded(pef) as device:
        with pytest.raises(InputError, match="is 3 numbers; a run makes 4 mini-batches"):
            device.run({"x": X}, argins={"rate": [1.0, 2.0, 3.0]})
        with pytest.raises(InputError, match="argin 'rate' is 'x'"):
            device.run({"x": X}, argins={"rate": [1.0, 2.0, 3.0, "x"]})
        np.testing.assert_array_equal(device.read("sum"), np.zeros(3))
        assert float(device.read("rate")) == 1.0


def test_an_anomaly_of_any_mini_batch_is_found(pef: Pef) -> None:
    x = X.copy()
    x[5, 1] = np.nan
    with loaded(pef) as device:
        device.run({"x": X}, detect_anomaly=True)
        with pytest.raises(AnomalyError, match=r"'x' has 1 NaN .* among 6"):
            device.run({"x": x}, detect_anomaly=True)


def test_whole_inputs_and_outputs_are_written_and_read(pef: Pef) -> None:
    with loaded(pef) as device:
        device.write("x", X)
        device.run({}, [])
        np.testing.assert_array_equal(device.read("y"), X)
        with pytest.raises(InputError, match=r"expected tensor\(float\)\[8, 3\]"):
            device.write("x", X[:2])


def test_one_mini_batch_is_a_run_of_one(tmp_path: Path) -> None:
    one = dataclasses.replace(program(), spatial_batches=1)
    with compile_programs([one], tmp_path / "one.pef") as pef, loaded(pef) as device:
        made = device.run({"x": X[:2]})
        np.testing.assert_array_equal(made["y"], X[:2])
        assert made["first"].shape == (1,)
