from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.program.scopes import OWN_SCOPE_KEY, SCOPES_KEY, scope, stage_name, unique


def node(operator: str, *, scopes: list[str] | None = None, name: str = "n") -> ir.Node:
    metadata = {} if scopes is None else {SCOPES_KEY: repr(scopes)}
    return ir.Node("", operator, [], name=name, num_outputs=1, metadata_props=metadata)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (node("Add", scopes=["", "layers.0", "layers.0.fc", "linear"]), ("layers", "0", "fc")),
        (node("Add", scopes=["", "add"]), ()),
        (node("Add", scopes=["it's", "add"]), ("it's",)),
        (node("Conv", name="/layer1/layer1.0/conv1/Conv"), ("layer1", "0", "conv1")),
        (node("Conv", name="/Conv"), ()),
        (node("Conv", name="Conv_3"), None),
        (node("Conv", name=""), None),
    ],
)
def test_scope(found: ir.Node, expected: tuple[str, ...] | None) -> None:
    assert scope(found) == expected


def test_our_own_exporter_says_the_scope_without_the_name_of_the_model() -> None:
    found = node("Conv", name="lenet__conv1__conv")
    found.metadata_props[OWN_SCOPE_KEY] = "lenet__features__conv1"
    assert scope(found) == ("features", "conv1")
    found.metadata_props[OWN_SCOPE_KEY] = "lenet"
    assert scope(found) == ()


def test_metadata_that_is_no_list_is_no_scope() -> None:
    odd = node("Add")
    for text in ("", "(" * 100_000, "'", "__import__('os')", "None"):
        odd.metadata_props[SCOPES_KEY] = text
        assert scope(odd) is None


ATTENTION = node("MatMul", scopes=["", "layers.0", "layers.0.attn", "matmul"])
FEED = node("Gemm", scopes=["", "layers.0", "layers.0.mlp", "linear"])
LATER = node("Gemm", scopes=["", "layers.10", "layers.10.mlp", "linear"])
HEAD = node("Gemm", scopes=["", "head", "linear"])
ROOT = node("Softmax", scopes=["", "softmax"])
PLAIN = node("Relu")


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([ATTENTION], "layers.0.attn.MatMul"),
        ([ATTENTION, PLAIN, FEED], "layers.0"),
        ([ATTENTION, FEED, LATER], "layers"),
        ([ATTENTION, HEAD], "layers..head"),
        ([ATTENTION, ROOT], "layers..Softmax"),
        ([ROOT], "Softmax"),
        ([PLAIN], "Relu"),
        ([PLAIN, node("Exp"), node("Gemm")], "Relu..Gemm"),
        ([PLAIN, ROOT], "Softmax"),
    ],
)
def test_stage_name(nodes: list[ir.Node], expected: str) -> None:
    assert stage_name(nodes) == expected


def test_unique_names_keep_the_first_and_number_the_rest() -> None:
    assert unique(["a", "b", "a", "a_2", "a"]) == ("a", "b", "a_3", "a_2", "a_4")
    assert unique([]) == ()
