"""The table of operators: complete, without contradictions, and true where a library can tell."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tomllib
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnx.parser
import onnxruntime as ort
import pytest
from onnx.reference.ops import load_op

import samba_onnx.passes.targets
from samba_onnx.errors import InternalError
from samba_onnx.facts.domains import qualified
from samba_onnx.facts.flops import NoArithmetic, PerOutputElement, Uncounted
from samba_onnx.facts.operators import (
    FACTS,
    InPlace,
    Kind,
    Randomness,
    facts,
    operations,
    operators,
    table,
)
from tests.versions import needs

TARGETS = Path(samba_onnx.passes.targets.__file__).parent


def listed(file: str, section: str) -> set[str]:
    return set(tomllib.loads((TARGETS / file).read_text())[section])


RDU = sorted(listed("operators.toml", "operators"))


def test_every_operator_of_the_rdu_has_a_row() -> None:
    assert set(RDU) <= FACTS.keys()


def test_every_operator_that_a_target_refuses_has_a_row() -> None:
    assert listed("unsupported.toml", "unsupported") <= FACTS.keys()


@needs("onnx", "1.23")  # the table is of its operators
def test_every_operator_of_onnx_has_a_row_and_each_row_is_about_one() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    assert FACTS.keys() == known | {
        *("samba::AllGather", "samba::AllReduce", "samba::DropoutMask", "samba::StochasticRound")
    }


def test_every_row_states_every_fact() -> None:
    for field in dataclasses.fields(FACTS["Add"]):
        assert field.default is dataclasses.MISSING, field.name
        assert field.default_factory is dataclasses.MISSING, field.name


@pytest.mark.parametrize("name", RDU)
def test_the_work_of_the_rdu_is_counted_or_said_to_be_none(name: str) -> None:
    work = FACTS[name].flops
    assert not isinstance(work, Uncounted)
    words = work.reason if isinstance(work, NoArithmetic) else getattr(work, "steps", "")
    assert len(words) > 5
    if isinstance(work, PerOutputElement):
        assert work.factor > 0


@pytest.mark.parametrize("name", ["Shrink", "SwiGLU", "TopK", "samba::DropoutMask"])
def test_operators_that_counted_as_nothing_are_counted(name: str) -> None:
    assert not isinstance(FACTS[name].flops, NoArithmetic)


def test_a_second_row_about_an_operator_is_refused() -> None:
    row = FACTS["Add"]
    with pytest.raises(InternalError, match="two rows of facts are about Add"):
        table([row, dataclasses.replace(row, kind=Kind.MOVE)])


def test_rows_are_found_by_domain() -> None:
    assert facts("Add") is facts("Add", "ai.onnx") is FACTS["Add"]
    assert facts("Add", "com.example") is None
    assert facts("DropoutMask") is None
    assert facts("DropoutMask", "samba") is FACTS["samba::DropoutMask"]
    assert qualified("com.microsoft", "Gelu") == "com.microsoft::Gelu"
    assert qualified("ai.onnx", "Gelu") == "Gelu"


def test_selections_keep_to_the_default_domain() -> None:
    assert "DropoutMask" not in operators()
    assert operators(kind=Kind.CONTROL) == {"If", "Loop", "Scan", "SequenceMap"}
    assert operators(random=[Randomness.TRAINING]) == {"Dropout"}
    assert operators(in_place=[InPlace.OVERWRITTEN]) == {"ScatterElements", "ScatterND"}


@needs("onnx", "1.23")  # the table is of its operators
def test_control_operators_are_those_with_a_body() -> None:
    def has_body(schema: onnx.defs.OpSchema) -> bool:
        return any(
            attribute.type is onnx.defs.OpSchema.AttrType.GRAPH
            for attribute in schema.attributes.values()
        )

    schemas = [schema for schema in onnx.defs.get_all_schemas() if not schema.domain]
    assert operators(kind=Kind.CONTROL) == {schema.name for schema in schemas if has_body(schema)}


@needs("onnx", "1.23")  # the table is of its operators
def test_random_operators_are_those_that_onnx_calls_not_deterministic() -> None:
    nondeterministic = onnx.defs.OpSchema.NodeDeterminism.NonDeterministic
    told = {
        schema.name
        for schema in onnx.defs.get_all_schemas()
        if not schema.domain and schema.node_determinism == nondeterministic
    }
    bodies = operators(kind=Kind.CONTROL) | {"AffineGrid"}  # whose body has an If
    random = operators(random=[Randomness.ALWAYS, Randomness.TRAINING])
    assert told - bodies == random
    assert not random & operators(foldable=True)


def run(name: str, *arrays: np.ndarray, **attributes: object) -> np.ndarray:
    """Run one operator in onnxruntime."""
    helper = onnx.helper
    operands = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(name, operands, ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(
            operand, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for operand, array in zip(operands, arrays, strict=True)
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    (result,) = session.run(None, dict(zip(operands, arrays, strict=True)))
    return np.asarray(result)


def operand(name: str, position: int, size: int) -> np.ndarray:
    """Return an operand that the operator's schema allows, of many magnitudes."""
    generator = np.random.default_rng(position)
    schema = onnx.defs.get_schema(name, 18)
    formal = schema.inputs[min(position, len(schema.inputs) - 1)]
    allowed = set(formal.types)
    if "tensor(float)" in allowed:
        return (generator.standard_normal(size) * 10.0 ** generator.integers(-6, 6, size)).astype(
            np.float32
        )
    if "tensor(bool)" in allowed:
        return generator.integers(0, 2, size).astype(bool)
    return generator.integers(0, 1 << 20, size).astype(np.int32)


ATTRIBUTES: dict[str, dict[str, object]] = {"Cast": {"to": onnx.TensorProto.FLOAT16}}
NOT_IN_OPSET_18 = {"BitCast", "BitShift"}  # newer, and with an attribute of its own kind
PLACELESS = sorted(operators(kind=Kind.ELEMENTWISE, same_bits=True) - NOT_IN_OPSET_18)


def arity(name: str) -> int:
    schema = onnx.defs.get_schema(name, 18)
    return max(schema.min_input, 2 if schema.max_input > 100 else 1)


@pytest.mark.parametrize("name", PLACELESS)
def test_an_elements_place_makes_no_difference(name: str) -> None:
    size = 1000
    arrays = [operand(name, position, size) for position in range(arity(name))]
    attributes = ATTRIBUTES.get(name, {})
    whole = run(name, *arrays, **attributes)
    for begin, end in [(1, size), (3, 16), (7, 8), (0, 333)]:
        part = run(name, *(array[begin:end].copy() for array in arrays), **attributes)
        assert part.tobytes() == whole[begin:end].tobytes()


UNARY_EXACT = sorted(
    name
    for name in operators(kind=Kind.ELEMENTWISE, exact_in_bfloat16=True)
    if arity(name) == 1 or name in {"Max", "Min"}
)


@pytest.mark.parametrize("name", UNARY_EXACT)
def test_results_are_bfloat16_numbers(name: str) -> None:
    arrays = [
        operand(name, position, 1000).astype(ml_dtypes.bfloat16).astype(np.float32)
        for position in range(arity(name))
    ]
    result = run(name, *arrays)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, result.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_arithmetic_that_rounds_is_not_exact_in_bfloat16() -> None:
    rounding = {"Add", "Sub", "Mul", "Div", "Sqrt", "Exp", "ReduceSum", "MatMul", "Softmax"}
    assert not rounding & operators(exact_in_bfloat16=True)


def test_the_table_loads_neither_numpy_nor_onnx() -> None:
    code = (
        "import sys, samba_onnx.facts.operators, samba_onnx.facts.names, samba_onnx.facts.tolerances;"
        "print(sorted({'numpy', 'onnx', 'onnx_ir', 'torch', 'onnxruntime'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Shrink", "2 per element of the result: compare, shift"),
        ("ReduceSum", "1 per element of the first operand: one operation"),
        ("Gemm", "a matrix product and the bias"),
        ("Transpose", "none: elements are moved or selected, not computed with"),
        ("Loop", "not counted: how often its body runs is known when it runs"),
        ("com.example::Add", "not counted: nothing is known of it"),
    ],
)
def test_operations_are_told_in_words(name: str, words: str) -> None:
    assert operations(name) == words


FOLDED = sorted(operators(kind=Kind.ELEMENTWISE, foldable=True) - {"CastLike", "Mod", "Where"})


@pytest.mark.parametrize("name", FOLDED)
def test_what_is_folded_is_the_same_in_numpy_as_in_onnxruntime(name: str) -> None:
    arrays = [operand(name, position, 1000) for position in range(arity(name))]
    attributes = ATTRIBUTES.get(name, {})
    expected = run(name, *arrays, **attributes)
    with np.errstate(all="ignore"):
        result = load_op("", name, 18).eval(*arrays, **attributes)
    assert result.dtype == expected.dtype
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(result, expected)
    else:
        # The kernels' own approximations differ by some roundings of float32; large angles by more.
        np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-6)
