"""Evaluates a graph operator by operator with ``onnx.reference``.

One evaluator per node, and not one for the whole graph: so an error names the node that it comes from,
and a value is given up after its last reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from samba_onnx.errors import ExecutionError
from samba_onnx.pef.stage_checks import type_text
from samba_onnx.runtime.engine.reference.dropout import DropoutMask
from samba_onnx.runtime.engine.reference.scan import Scan
from samba_onnx.runtime.engine.reference.stochastic_round import StochasticRound

_LONGEST_REASON = 300
_OWN = [DropoutMask, Scan, StochasticRound]
"""Operators that ``onnx.reference`` lacks, or has in part."""


@dataclass(frozen=True)
class _Operation:
    """One node, ready to be evaluated."""

    title: str
    """What messages call it."""
    evaluator: ReferenceEvaluator
    reads: tuple[str, ...]
    """Values that the node or its subgraphs read from outside."""
    writes: tuple[str, ...]
    done: tuple[str, ...]
    """Values that nothing reads afterwards."""


class ReferenceGraph:
    """A model whose operators are evaluated one after the other; runs on host values."""

    def __init__(self, model: onnx.ModelProto, folder: str = "") -> None:
        """Look for an implementation of every operator.

        Args:
            model: Plain ONNX and this product's own operators.
            folder: Where the files of external initializers lie.

        Raises:
            ExecutionError: An operator has none; names it.
        """
        graph = model.graph
        self.initializers = {
            tensor.name: numpy_helper.to_array(tensor, folder) for tensor in graph.initializer
        }
        for sparse in graph.sparse_initializer:
            self.initializers[sparse.values.name] = _dense(sparse)
        inputs = [value for value in graph.input if value.name not in self.initializers]
        self.inputs = {value.name: type_text(value.type) for value in inputs or graph.input}
        """ONNX's text forms of the inputs' types, by name, in order."""
        self.outputs = {value.name: type_text(value.type) for value in graph.output}
        """ONNX's text forms of the outputs' types, by name, in order."""
        self._operations = list(_operations(model))

    def run(self, feed: Mapping[str, Any]) -> Sequence[Any]:
        """Evaluate once.

        Args:
            feed: Arrays by input name; lists and None where the input is a sequence or an optional.

        Returns:
            All outputs in order; fresh, they share no memory with the feed.

        Raises:
            ExecutionError: An operator failed, or an input is missing; names it.
        """
        values: dict[str, Any] = {**self.initializers, **feed}
        missing = [name for name in self.inputs if name not in values]
        if missing:
            raise _failure(f"input {missing[0]!r} has no value")
        for operation in self._operations:
            results = _evaluated(operation, {name: values[name] for name in operation.reads})
            values.update(zip(operation.writes, results, strict=True))
            for name in operation.done:
                del values[name]
        return [_own(values[name]) for name in self.outputs]


def _evaluated(operation: _Operation, feed: Mapping[str, Any]) -> list[Any]:
    try:
        # As onnxruntime, which computes infinite numbers and NaN without a word.
        with np.errstate(all="ignore"):
            return list(operation.evaluator.run(None, dict(feed)))
    except Exception as error:  # operators of onnx.reference raise whatever numpy raises
        text = " ".join(str(error).split()) or type(error).__name__
        raise _failure(f"{operation.title}: {text}") from error


def _failure(reason: str) -> ExecutionError:
    short = reason if len(reason) <= _LONGEST_REASON else reason[: _LONGEST_REASON - 3] + "..."
    return ExecutionError(short, reason=short)


def _operations(model: onnx.ModelProto) -> Iterator[_Operation]:
    """Yield the nodes in the graph's order, with what may be given up after each."""
    reads = [tuple(_read_by(node)) for node in model.graph.node]
    last = {name: index for index, names in enumerate(reads) for name in names}
    outputs = {value.name for value in model.graph.output}
    for index, node in enumerate(model.graph.node):
        writes = tuple(name for name in node.output if name)
        done = {name for name in reads[index] if last[name] == index}
        done |= {name for name in writes if name not in last}
        yield _Operation(
            _title(node), _evaluator(node, model), reads[index], writes, tuple(done - outputs)
        )


def _title(node: onnx.NodeProto) -> str:
    operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return f"{operator} node {node.name or node.output[0]!r}"


def _evaluator(node: onnx.NodeProto, model: onnx.ModelProto) -> ReferenceEvaluator:
    # Without types of inputs, an operator that is a function of others is expanded when it runs,
    # when they are known.
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.GraphProto(name=node.name, node=[node], output=outputs)
    part = onnx.ModelProto(
        ir_version=model.ir_version,
        opset_import=model.opset_import,
        functions=model.functions,
        graph=graph,
    )
    try:
        return ReferenceEvaluator(part, new_ops=_OWN)
    except Exception as error:  # of many classes: NotImplementedError, TypeError, RuntimeError
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise _failure(
            f"{_title(node)}: onnx.reference has no implementation of it ({lines[0]})"
        ) from error


def _read_by(node: onnx.NodeProto) -> Iterable[str]:
    """Return the values that a node and its subgraphs read from outside, each once."""
    names = dict.fromkeys(name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            names.update(dict.fromkeys(_captured(graph)))
    return names


def _captured(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the values of outer graphs that a graph reads."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in _read_by(node) if name not in own)
    yield from (value.name for value in graph.output if value.name not in own)


def _dense(sparse: onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def _own(value: Any) -> Any:
    """Return a value that shares no memory with inputs and initializers."""
    if isinstance(value, list):
        return [_own(item) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    return np.array(value, dtype=object if value.dtype.kind in "US" else value.dtype, order="C")
