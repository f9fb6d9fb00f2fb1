"""Measures the CPU of this machine, through the engine that executes fallbacks."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

from samba_onnx.errors import ExecutionError
from samba_onnx.facts.defaults import DEFAULT_ENGINE
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.runtime.engine.protocol import Computation, Engine, HostComputation
from samba_onnx.runtime.engine.registry import make_engine
from samba_onnx.runtime.engine.settings import engine_settings

NAME: Final = "measured"
"""What a measured profile is called."""
LEAST_RUNS: Final = 3
"""Runs of each computation, however long they take."""
_SIZE: Final = 1024
"""Rows and columns of the matrices: large enough for all cores, small enough for a slow one."""
_ELEMENTS: Final = 1 << 22
"""Floats of what is added and transposed: 16 MiB, more than the caches next to a core hold."""
_CHAIN: Final = 256
"""Nodes of the chain that shows what a node costs."""
_PRODUCTS: Final = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8),
}

Count = Callable[[float, float], None]
"""Called with how much is done, and of how much."""


def uncounted(done: float, total: float) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Calibration:
    """What was measured."""

    host: HostSummary
    note: str
    """The engine that it was measured with, its version and its threads."""
    refused: tuple[str, ...]
    """Data types whose products the engine cannot compute: they count as float32."""


def calibrate(
    seconds: float = 5.0, threads: int | None = None, count: Count = uncounted
) -> Calibration:
    """Measure the figures of the host's profile.

    Args:
        seconds: Wall-clock time for all measurements together; a computation that takes longer than its
            share runs three times all the same.
        threads: Threads within an operator; one per core when None.
        count: Called after each run.

    Returns:
        The profile, each figure from the median of its runs.

    Raises:
        UsageError: ``threads`` is less than 1.
        ExecutionError: The engine cannot compute with float32.
    """
    engine = make_engine(DEFAULT_ENGINE, engine_settings(threads))
    clock = _Clock(engine, seconds / (len(_PRODUCTS) + 4), seconds, count)
    peaks = {name: clock.products(name) for name in _PRODUCTS}
    float32 = peaks["float32"]
    if float32 is None:
        raise ExecutionError("the engine cannot multiply matrices of float32: nothing was measured")
    added = clock.median(_model("Add", [_ELEMENTS], count=2))
    moved = clock.median(_model("Transpose", [_SIZE, _ELEMENTS // _SIZE]))
    one, many = clock.median(_chain(1)), clock.median(_chain(_CHAIN))
    node = max((many - one) / (_CHAIN - 1), 1e-9)
    cores = threads or os.cpu_count() or 1
    return Calibration(
        host=HostSummary(
            name=NAME,
            peak_flops={name: rate for name, rate in peaks.items() if rate is not None},
            bytes_per_second=3 * 4 * _ELEMENTS / added,
            copy_bytes_per_second=2 * 4 * _ELEMENTS / moved,
            node_seconds=node,
            call_seconds=max(one - node, 1e-9),
        ),
        note=f"onnxruntime {version('onnxruntime')}, {cores} thread{'s' if cores > 1 else ''}",
        refused=tuple(name for name, rate in peaks.items() if rate is None),
    )


@dataclass
class _Clock:
    """Takes the time of computations."""

    engine: Engine
    share: float
    """Seconds for each computation."""
    total: float
    count: Count
    spent: float = 0.0

    def products(self, dtype: str) -> float | None:
        """Return operations per second of a product of matrices, None where the engine has none."""
        operator = "MatMulInteger" if dtype == "int8" else "MatMul"
        try:
            seconds = self.median(_model(operator, [_SIZE, _SIZE], dtype=dtype, count=2))
        except ExecutionError:
            return None
        return 2 * _SIZE**3 / seconds

    def median(self, model: onnx.ModelProto) -> float:
        """Return the median time of a run, the first one apart."""
        computation = self.engine.prepare(Computation(model, "calibration"))
        feed = _feed(model)
        computation.run(feed)
        return statistics.median(self._runs(computation, feed))

    def _runs(self, computation: HostComputation, feed: dict[str, Any]) -> Iterator[float]:
        used, runs = 0.0, 0
        while runs < LEAST_RUNS or used < self.share:
            begin = time.perf_counter()
            computation.run(feed)
            seconds = time.perf_counter() - begin
            yield seconds
            used, runs = used + seconds, runs + 1
            self.spent += seconds
            self.count(min(self.spent, self.total), self.total)


def _model(
    operator: str, shape: list[int], *, dtype: str = "float32", count: int = 1
) -> onnx.ModelProto:
    """Return a model of one node, whose operands have all the same shape."""
    kind = helper.np_dtype_to_tensor_dtype(_PRODUCTS[dtype])
    result = TensorProto.INT32 if operator == "MatMulInteger" else kind
    names = [f"x{index}" for index in range(count)]
    shape_after = shape[::-1] if operator == "Transpose" else shape
    return _whole(
        [helper.make_node(operator, names, ["y"], name="node")],
        [helper.make_tensor_value_info(name, kind, shape) for name in names],
        helper.make_tensor_value_info("y", result, shape_after),
    )


def _chain(length: int) -> onnx.ModelProto:
    """Return a model of nodes on one float each of which needs the one before."""
    nodes = [
        helper.make_node("Add", [f"v{index}", "x"], [f"v{index + 1}"], name=f"node_{index}")
        for index in range(length)
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in ("x", "v0")]
    return _whole(nodes, ends, helper.make_tensor_value_info(f"v{length}", TensorProto.FLOAT, [1]))


def _whole(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], output: onnx.ValueInfoProto
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "calibration", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _feed(model: onnx.ModelProto) -> dict[str, Any]:
    """Return ones of every input's type and shape: no value is slower than another one."""
    return {
        value.name: np.ones(
            [dimension.dim_value for dimension in value.type.tensor_type.shape.dim],
            helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
        )
        for value in model.graph.input
    }
