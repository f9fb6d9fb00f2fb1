"""sympy is imported when it is needed, and works then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

SEEN = "print('sympy' in sys.modules, file=sys.stderr)\n"


def run(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.split()


@pytest.mark.parametrize("dimension", ["batch", "past + 1"])
def test_analysis_does_without_it(tmp_path: Path, dimension: str) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [dimension, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    code = (
        "from samba_onnx.cli.application import answer\n"
        f"assert answer(['analyze', {str(path)!r}, '--quiet']) == 0\n{SEEN}"
    )
    assert run(code)[-1] == "False"


ARITHMETIC = (
    "import onnx_ir\n"
    "total = onnx_ir.SymbolicDim('past') + 1\n"
    "assert str(total.value) == 'past + 1', total\n"
    "assert total.evaluate({'past': 3}) == 4\n"
)
ALONE = "import sympy.core.numbers\nassert sympy.Integer(2) + 1 == 3\nassert onnx_ir._core.sympy.Max is sympy.Max\n"


@pytest.mark.parametrize("code", [ARITHMETIC + ALONE, "import onnx_ir\n" + ALONE + ARITHMETIC])
def test_it_works_whoever_asks_first(code: str) -> None:
    deferring = "from samba_onnx.safety.deferred import defer_imports\ndefer_imports()\n"
    assert run(deferring + "import onnx_ir\n" + SEEN + code)[-1] == "False"


def test_a_process_that_has_it_keeps_it() -> None:
    code = (
        "import sympy\nfrom samba_onnx.safety.deferred import defer_imports\ndefer_imports()\n"
        "import onnx_ir\nassert onnx_ir._core.sympy is sympy\n"
        "assert sys.modules['sympy'] is sympy\ndefer_imports()\n"
        "print(sum('safety.deferred' in repr(each) for each in sys.meta_path), file=sys.stderr)\n"
    )
    assert run(code) == ["0"]
