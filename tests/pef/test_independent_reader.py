"""The reader in ``docs/pef.md``, which knows nothing of samba-onnx, agrees with the emulator."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import samba_onnx
from samba_onnx.pef import load_pef
from samba_onnx.runtime.device import Device
from tests.pef.independent_reader import reader, source

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
net (float[4, 300] x, int64[1] offset) => (float[4, 8] y, float[4, 300] s)
{
    h = Mul(x, w)
    u = Unique<sorted = 1>(offset)
    f = Cast<to = 1>(u)
    a = Add(h, f)
    s = Softmax(a)
    m = MatMul(s, v)
    y = Relu(m)
}"""


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PEF with a section per operator, and a fallback in between; its larger weight begins at a page."""
    model = onnx.parser.parse_model(MODEL)
    random = np.random.default_rng(0)
    for name, shape in (("w", (4, 300)), ("v", (300, 8))):
        tensor = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(tensor, name))
    path = tmp_path_factory.mktemp("reader") / "net.pef"
    samba_onnx.convert(model, path, level="o0").close()
    return path


def test_it_stands_on_its_own() -> None:
    imported = re.findall(r"^(?:import|from) (.*?)(?: import .*)?$", source(), re.MULTILINE)
    names = {name.split()[0] for line in imported for name in line.split(", ")}
    assert names == {
        *("hashlib", "json", "math", "sys", "tempfile", "zipfile", "pathlib"),
        *("numpy", "onnxruntime"),
    }
    assert sum(bool(line.strip()) for line in source().splitlines()) < 70


def test_it_computes_what_the_emulator_computes(converted: Path) -> None:
    """Both run the same stages with the same kernels: every bit is the same."""
    pef = reader().Pef(converted)
    assert len(pef.manifest["sections"]) > 2
    assert pef.manifest["fallbacks"]
    random = np.random.default_rng(1)
    x = random.standard_normal((4, 300)).astype(np.float32)
    inputs = {"x": x, "offset": np.array([3])}
    outputs = pef.run(inputs)
    with load_pef(converted) as opened, Device(opened) as device:
        expected = device.run(inputs)
    assert list(outputs) == list(expected) == ["y", "s"]
    for name, value in expected.items():
        np.testing.assert_array_equal(outputs[name], value)


def test_it_reads_the_sample(converted: Path) -> None:
    pef = reader().Pef(converted)
    outputs, expected = pef.run(pef.sample("input")), pef.sample("output")
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name], value, rtol=1e-5, atol=1e-6)


def test_it_notices_a_changed_member(converted: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.pef"
    with zipfile.ZipFile(converted) as good, zipfile.ZipFile(changed, "w") as bad:
        for name in good.namelist():
            content = good.read(name)
            bad.writestr(name, content[:-1] if name.startswith("stages/") else content)
    with pytest.raises(ValueError, match="was changed"):
        reader().Pef(changed)
