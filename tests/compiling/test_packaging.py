"""What the compiler writes, and what it refuses to write."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

import samba_onnx
from samba_onnx.errors import InvalidModelError
from tests.passes.rewrites.applying import parse

SPLIT = """g (float[6] x) => (float[?] y, float[?] z) <int64[1] two = {2}> {
  s = Concat<axis=0>(two, two, two, two)
  y, z = Split(x, s)
}"""
RESHAPE = """g (float[2,3,4] x, int64[65] s) => (float[?,?] y) {
  y = Reshape(x, s)
}"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (SPLIT, "node 'Split' (Split): it has 2 outputs for 4 parts"),
        (RESHAPE, "graph, output 'y': more than 64 dimensions"),
    ],
)
def test_what_no_runtime_takes_is_the_models_fault(text: str, reason: str, tmp_path: Path) -> None:
    """What is wrong shows only once constants and shapes are computed; nothing is reported as a fault of the compiler."""
    model = ir.to_proto(parse(text))
    with pytest.raises(InvalidModelError) as caught:
        samba_onnx.convert(model, tmp_path / "m.pef", sample=False, trial=False)
    assert str(caught.value).startswith("it compiles to what no runtime takes: stage ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
