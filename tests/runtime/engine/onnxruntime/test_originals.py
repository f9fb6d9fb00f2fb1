"""Models that onnxruntime refuses for their versions run where nothing in them is as new."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import samba_onnx
from samba_onnx.errors import ExecutionError
from samba_onnx.facts.versions import NEWEST_RUNNABLE_IR, NEWEST_RUNNABLE_OPSET
from samba_onnx.runtime.engine.onnxruntime.originals import runnable_source

NEWEST = onnx.defs.onnx_opset_version()
PLAIN = 'g (float[2,3] x) => (float[2,3] y) { y = Einsum<equation="ij->ij">(x) }'


def model(
    text: str, opset: int = NEWEST, ir_version: int = int(onnx.IR_VERSION)
) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["": {opset}]> {text}'
    )


def test_what_is_newer_than_onnxruntime_is_stamped_as_the_newest_that_it_knows() -> None:
    given = model(PLAIN)
    source = runnable_source(given)
    assert source is not None
    made = onnx.load_from_string(source[0])
    assert made.ir_version == NEWEST_RUNNABLE_IR
    assert [entry.version for entry in made.opset_import] == [NEWEST_RUNNABLE_OPSET]
    assert given.opset_import[0].version == NEWEST


def test_what_onnxruntime_takes_and_what_uses_newer_operators_stays_as_it_is() -> None:
    assert runnable_source(model(PLAIN, NEWEST_RUNNABLE_OPSET, NEWEST_RUNNABLE_IR)) is None
    schemas = onnx.defs.get_all_schemas()
    newer = [s for s in schemas if s.domain == "" and s.since_version > NEWEST_RUNNABLE_OPSET]
    known = {
        s.name
        for s in onnx.defs.get_all_schemas_with_history()
        if s.domain == "" and s.since_version <= NEWEST_RUNNABLE_OPSET
    }
    names = [schema.name for schema in newer if schema.name not in known]
    if not names:
        pytest.skip("onnx has no operator that onnxruntime lacks")
    given = model(f"g (float[2,4] x) => (float[2,2] y) {{ y = {names[0]}(x) }}")
    assert runnable_source(given) is None


def test_newest_models_convert_verify_and_test_themselves(tmp_path: Path) -> None:
    given = model(PLAIN)
    onnx.save(given, tmp_path / "m.onnx")
    with samba_onnx.convert(tmp_path / "m.onnx") as pef:
        assert pef.manifest.reference is not None
        assert samba_onnx.verify(tmp_path / "m.onnx", pef).passed
        assert samba_onnx.self_test(pef).passed
        with samba_onnx.Device(pef, threads=1) as device:
            x = np.ones((2, 3), np.float32)
            np.testing.assert_array_equal(device.run({"x": x})["y"], x)


def test_a_type_that_is_new_is_refused_still(tmp_path: Path) -> None:
    from samba_onnx.runtime.engine.evaluation import open_original

    given = model("g (bool[2,3] x) => (bool[2,3] y) { y = Celu(x) }")
    with pytest.raises(ExecutionError):
        open_original(given)
