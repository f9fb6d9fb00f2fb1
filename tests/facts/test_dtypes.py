"""The table of element types against the libraries whose names it holds."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from safetensors.numpy import _TYPES as SAFETENSORS_TYPES

from samba_onnx.facts.dtypes import (
    ELEMENT_TYPES,
    OPAQUE,
    ElementType,
    dtype_name,
    plain_name,
    tensor_element,
    tensor_text,
    type_problem,
)
from samba_onnx.tensor.dtypes import TORCH_TYPES

each = pytest.mark.parametrize("element", ELEMENT_TYPES.values(), ids=ELEMENT_TYPES.keys())


@each
def test_onnx_says_the_same(element: ElementType) -> None:
    if not hasattr(onnx.TensorProto, element.name.upper()):
        pytest.skip(f"onnx {onnx.__version__} does not know the type")
    assert onnx.TensorProto.DataType.Value(element.name.upper()) == element.number
    known = ir.DataType(element.number)
    assert known.bitwidth == element.bits
    assert known.is_floating_point() == element.floating
    assert known.numpy() == element.numpy
    assert element.numpy.name == element.dtype_name


def test_every_type_of_fixed_size_that_numpy_has_is_in_the_table() -> None:
    missing = set(ir.DataType) - {element.number for element in ELEMENT_TYPES.values()}
    assert {dtype.name for dtype in missing} <= {"UNDEFINED", "STRING", "FLOAT6E2M3", "FLOAT6E3M2"}


@each
def test_torch_says_the_same(element: ElementType) -> None:
    if not element.torch_computes:
        assert element.number not in TORCH_TYPES
        return
    dtype = TORCH_TYPES[element.number]
    assert dtype_name(dtype) == dtype_name(element.numpy) == element.dtype_name
    assert dtype.itemsize * 8 == element.bits
    assert torch.zeros(2, dtype=dtype).sum().item() == 0


@each
def test_safetensors_says_the_same(element: ElementType) -> None:
    if element.safetensors != OPAQUE and element.safetensors in SAFETENSORS_TYPES:
        assert np.dtype(SAFETENSORS_TYPES[element.safetensors]) == element.numpy


@each
def test_text_forms(element: ElementType) -> None:
    assert tensor_element(element.text) is element
    assert element.text == tensor_text(element.name) == tensor_text(element.name.upper())


@pytest.mark.parametrize("text", ["tensor(string)", "seq(tensor(float))", "float", ""])
def test_what_is_no_tensor_of_numbers_has_no_element(text: str) -> None:
    assert tensor_element(text) is None


@pytest.mark.parametrize(
    ("name", "plain"),
    [("FLOAT", "float32"), ("double", "float64"), ("BFLOAT16", "bfloat16"), ("int4", "int4")],
)
def test_plain_names(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_the_table_loads_no_library() -> None:
    code = (
        "import sys, samba_onnx.facts.dtypes;"
        "print(sorted({'numpy', 'ml_dtypes', 'onnx', 'torch'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "text",
    ["", "tensor(float)", "tensor(string)", "seq(tensor(int64))", "sparse_tensor(float)",
     "optional(seq(tensor(float16)))", "map(int64,tensor(float))", "map(string,seq(tensor(bool)))"],
)  # fmt: skip
def test_onnx_types_are_known(text: str) -> None:
    assert type_problem(text) is None


@pytest.mark.parametrize("text", ["float", "tensor()", "tensor(Float)", "seq()x", "seq(tensor(x))"])
def test_other_types_are_not(text: str) -> None:
    assert type_problem(text) == f"{text!r} is no ONNX type"
