"""Cases of the ONNX backend suite, computed by the module that is made of their model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from samba_onnx.importing import module_from_onnx
from samba_onnx.importing.operators.computations import find
from samba_onnx.importing.values import stored_tensor, to_numpy
from tests.backend_cases import BackendCase, assert_outputs

FLOATING = frozenset(
    {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
    }
)
_CONTROL = {"If": (0,), "Loop": (0, 1), "Upsample": (1,)}


def is_floating(case: BackendCase) -> bool:
    """Whether an output holds floating-point numbers, so that the case could be trained through."""
    return any(_element_type(value.type) in FLOATING for value in case.model.graph.output)


def _element_type(declared: onnx.TypeProto) -> int:
    kind = declared.WhichOneof("value")
    if kind == "tensor_type":
        return declared.tensor_type.elem_type
    if kind in ("sequence_type", "optional_type"):
        return _element_type(getattr(declared, kind).elem_type)
    return 0


def bind(model: onnx.ModelProto, inputs: Sequence[Any]) -> tuple[onnx.ModelProto, list[Any]]:
    """Turn inputs that decide shapes into constants: the suite gives shapes and axes as inputs.

    Returns:
        The model and the inputs that are left.
    """
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    graph = bound.graph
    initialized = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in initialized]
    names = names or [value.name for value in graph.input]
    fixed = _decisive(graph)
    rest = []
    for name, value in zip(names, inputs, strict=False):
        if name in fixed and isinstance(value, np.ndarray):
            graph.initializer.append(numpy_helper.from_array(value, name))
            graph.input.remove(next(item for item in graph.input if item.name == name))
        else:
            rest.append(value)
    return bound, rest


def _decisive(graph: onnx.GraphProto) -> set[str]:
    """Return names that operators must know beforehand, through the nodes that pass them on."""
    found: set[str] = set()
    for node in reversed(graph.node):
        entry = find(node.domain, node.op_type)
        known = entry.known if entry is not None else frozenset(_CONTROL.get(node.op_type, ()))
        found |= {name for place, name in enumerate(node.input) if name and place in known}
        if any(name in found for name in node.output) and node.op_type not in ("Shape", "Size"):
            found |= {name for name in node.input if name}
    return found


def compute(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs that the module of a model gives."""
    bound, rest = bind(model, inputs)
    module = module_from_onnx(bound)
    given = dict(zip(module.input_names, map(_given, rest), strict=False))
    with torch.no_grad():
        outputs = module(**given)
    several = outputs if isinstance(outputs, tuple) else (outputs,)
    return [_taken(output) for output in several]


def _given(value: Any) -> Any:
    if isinstance(value, list):
        return [_given(item) for item in value]
    if value is None:
        return None
    import onnx_ir as ir

    return stored_tensor(ir.tensor(value))


def _taken(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_taken(item) for item in value]
    return None if value is None else to_numpy(value)


def problem(case: BackendCase) -> str:
    """Return what is wrong with a case; nothing when it passes."""
    try:
        for inputs, expected in case.data_sets():
            assert_outputs(case, expected, compute(case.model, inputs))
    except AssertionError as error:
        return f"different: {' '.join(str(error).split())[:160]}"
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ""


def trace(case: BackendCase) -> bool | None:
    """Return whether torch traces a case; None when no input is left to trace with."""
    inputs, _ = case.data_sets()[0]
    bound, rest = bind(case.model, inputs)
    if not any(isinstance(value, np.ndarray) for value in rest):
        return None
    module = module_from_onnx(bound)
    try:
        torch.export.export(module, tuple(map(_given, rest)), strict=False)
    except Exception as error:
        print(f"{case.name}: {type(error).__name__}: {error}")
        return False
    return True
