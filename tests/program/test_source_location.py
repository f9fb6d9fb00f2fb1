"""Where a node comes from, out of the stacks that torch's exporters record."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.program.source_location import STACK_TRACE, library_line, source_location, user_line

# As torch 2.13 writes them, outermost frame first.
MODEL = '  File "/home/me/net/model.py", line 8, in forward\n    y = self.fc(x)\n'
OUTER = 'File "/home/me/net/outer.py", line 3, in forward\n    return self.inner(x)\n'
TORCH = (
    '  File "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 134, in forward\n'
    "    return F.linear(input, self.weight, self.bias)"
)
BERT = (
    '  File "/venv/lib/python3.11/site-packages/transformers/models/bert/modeling_bert.py", '
    "line 175, in forward\n    query_layer = self.query(hidden_states)\n"
)

STANDARD = 'File "/opt/python/lib/python3.11/contextlib.py", line 81, in inner\n'
NAMED_TORCH = 'File "/home/me/torch/model.py", line 8, in forward\n'

# As the older, TorchScript-based exporter writes them, innermost frame first.
DOC_TORCH = "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py(134): forward\n"
DOC_MODEL = "/home/me/net/model.py(9): forward\n"
DOC_EXPORTER = (
    "/venv/lib/python3.11/site-packages/torch/jit/_trace.py(131): wrapper\n"
    "/home/me/net/export.py(7): <module>\n"
)
DOC_VISION = "/venv/lib/python3.11/site-packages/torchvision/models/resnet.py(92): forward\n"


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (OUTER + MODEL + TORCH, "model.py:8"),
        (OUTER + BERT + TORCH, "outer.py:3"),
        (BERT + TORCH, "transformers/models/bert/modeling_bert.py:175"),
        (TORCH, "torch/nn/modules/linear.py:134"),
        ('File "C:\\net\\model.py", line 12, in forward\n    x', "model.py:12"),
        ('File "<eval_with_key>.3", line 5, in forward\n    x', ""),
        ('File "/home/me/a\x1b[31m.py", line 5, in forward\n    x', ""),
        ("no frame at all", ""),
        ("", ""),
    ],
)
def test_stack_trace(trace: str, expected: str) -> None:
    node = ir.Node("", "Relu", [], metadata_props={STACK_TRACE: trace})

    assert source_location(node) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DOC_MODEL + DOC_EXPORTER, "model.py:9"),
        (DOC_TORCH + DOC_MODEL + DOC_EXPORTER, "model.py:9"),
        (DOC_TORCH + DOC_VISION + DOC_EXPORTER, "torchvision/models/resnet.py:92"),
        ("Computes a sum (see below).", ""),
        (None, ""),
    ],
)
def test_documentation_of_a_traced_node(text: str | None, expected: str) -> None:
    assert source_location(ir.Node("", "Relu", [], doc_string=text)) == expected


def test_a_huge_text_takes_no_time() -> None:
    node = ir.Node("", "Relu", [], doc_string="/a" * 1_000_000)

    assert source_location(node) == ""


@pytest.mark.parametrize(
    ("trace", "own", "library"),
    [
        (OUTER + MODEL + TORCH, "model.py:8", ""),
        (OUTER + BERT + TORCH, "outer.py:3", "transformers/models/bert/modeling_bert.py:175"),
        (BERT + MODEL, "model.py:8", ""),
        (BERT + TORCH, "", "transformers/models/bert/modeling_bert.py:175"),
        (OUTER + STANDARD + TORCH, "outer.py:3", ""),
        (BERT + STANDARD, "", "transformers/models/bert/modeling_bert.py:175"),
        (NAMED_TORCH + TORCH, "model.py:8", ""),
        (TORCH, "", ""),
        ("", "", ""),
    ],
)
def test_lines_of_users_and_of_libraries(trace: str, own: str, library: str) -> None:
    assert (user_line(trace), library_line(trace)) == (own, library)
