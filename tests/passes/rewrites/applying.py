"""Helpers of the tests of passes: run a rewrite, and hold the model before it against the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.interface import Interface
from tests.backend_cases import run_onnxruntime

TRACE = "pkg.torch.onnx.stack_trace"


class KnowsAll:
    """A target that has every operator."""

    repeats_bodies = False

    def knows(self, domain: str, op_type: str) -> bool:
        return True

    def runs(self, node: ir.Node) -> bool:
        return True


class Knows:
    """A target that has the operators that it is given."""

    repeats_bodies = False

    def __init__(self, *op_types: str) -> None:
        self.op_types = op_types

    def knows(self, domain: str, op_type: str) -> bool:
        return domain in ("", "ai.onnx") and op_type in self.op_types

    def runs(self, node: ir.Node) -> bool:
        return self.knows(node.domain, node.op_type)


def parse(graph: str, *, opset: int = 21, ir_version: int = 10, imports: str = "") -> ir.Model:
    """Return a model from onnx's text form, every node with a source trace."""
    header = f'<ir_version: {ir_version}, opset_import: ["": {opset}{imports}]>'
    model = ir.from_onnx_text(f"{header}\n{graph}")
    for number, node in enumerate(model.graph.all_nodes()):
        node.metadata_props[TRACE] = f'File "model.py", line {number + 1}, in forward'
    return model


def operators(model: ir.Model) -> list[str]:
    """Return the operators of the main graph in order."""
    return [node.op_type for node in model.graph]


def run(model: ir.Model, inputs: Sequence[Any]) -> list[Any]:
    """Run a model on onnxruntime without its optimiser."""
    return run_onnxruntime(ir.to_proto(model).SerializeToString(), inputs)


def check(
    model: ir.Model,
    *rewrites: ir.passes.PassBase,
    inputs: Sequence[Any],
    rtol: float = 0.0,
    atol: float = 0.0,
    modified: bool | None = True,
) -> ir.Model:
    """Run rewrites; interface, results and source traces must be what they were.

    Results are equal to the last bit unless a tolerance is given.
    """
    interface = Interface.of(model)
    before = run(model, inputs)
    results = [rewrite(model).modified for rewrite in rewrites]
    assert modified is None or any(results) == modified
    infers = any(isinstance(rewrite, InferShapesPass) for rewrite in rewrites)
    interface.check(model, "under test", static_inputs=False, static_outputs=infers)
    for old, new in zip(before, run(model, inputs), strict=True):
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        np.testing.assert_allclose(new, old, rtol=rtol, atol=atol)
    assert all(TRACE in node.metadata_props for node in model.graph.all_nodes())
    return model


def add_weights(model: ir.Model, weights: Mapping[str, np.ndarray]) -> ir.Model:
    """Turn inputs into initializers."""
    for name, array in weights.items():
        value = next(value for value in model.graph.inputs if value.name == name)
        model.graph.inputs.remove(value)
        value.const_value = ir.tensor(array, name=name)
        model.graph.register_initializer(value)
    return model


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Return seeded normal float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
