"""Cut models, computed: what each RDU has of every value, node by node, by onnx's reference.

Nothing of the emulator is used: collectives are sums and copies of numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from samba_onnx.facts.domains import ALL_REDUCE, SAMBA_DOMAIN
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.sharding.collectives import SHARDED
from samba_onnx.passes.sharding.cuts import Cut
from samba_onnx.passes.sharding.layouts import indices
from samba_onnx.passes.sharding.sharded_programs import cut_inputs, cut_part

Arrays = dict[str, np.ndarray]


@dataclass
class CutModel:
    """A model after it was cut."""

    model: ir.Model
    cut: Cut
    outputs: tuple[str, ...]

    @property
    def collectives(self) -> int:
        """Number of exchanges."""
        return sum(node.domain == SAMBA_DOMAIN for node in self.model.graph)

    def sharded(self) -> dict[str, tuple[int, ...]]:
        """Return the axes along which weights are cut, by name."""
        values = (*self.model.graph.inputs, *self.model.graph.outputs)
        return {
            value.name or "": tuple(split.axis for split in value.meta[SHARDED].axes)
            for value in values
            if SHARDED in value.meta
        }

    def run(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Compute on all RDUs and put the outputs together.

        Each value must have the shape that the model states for a shard; outputs that are whole must be the
        same on all RDUs, to the bit.
        """
        rdus = self.cut.rdus
        memories: list[Arrays] = [{} for _ in range(rdus)]
        whole = {name: tensor.numpy() for name, tensor in self.cut.contents.items()} | dict(inputs)
        for rdu, memory in enumerate(memories):
            for value in self.model.graph.inputs:
                memory[value.name or ""] = _shard(value, whole[value.name or ""], rdu)
            for name, value in self.model.graph.initializers.items():
                assert value.const_value is not None
                memory[name] = value.const_value.numpy()
        for node in self.model.graph:
            _execute(node, memories, self.model.opset_imports[""])
        return {
            value.name or "": _assembled(value, [memory[value.name or ""] for memory in memories])
            for value in self.model.graph.outputs
        }


def cut_model(
    proto: onnx.ModelProto,
    rdus: int,
    mode: str = "weight",
    inputs: Sequence[str] = ("x",),
    cut: Cut | None = None,
) -> CutModel:
    """Cut an ONNX model whose initializers are its weights."""
    model = ir.from_proto(proto)
    InferShapesPass()(model)
    cut = cut or Cut(rdus, mode)
    if mode == "batch":
        cut_inputs(model, cut, inputs, {})
    cut_part(model, cut, {}, {})
    return CutModel(model, cut, tuple(value.name or "" for value in model.graph.outputs))


def _shard(value: ir.Value, array: np.ndarray, rdu: int) -> np.ndarray:
    if SHARDED in value.meta:
        for split in value.meta[SHARDED].axes:
            array = np.take(array, indices(split, rdu), axis=split.axis)
    return array


def _assembled(value: ir.Value, shards: Sequence[np.ndarray]) -> np.ndarray:
    if SHARDED not in value.meta:
        for shard in shards:
            np.testing.assert_array_equal(shard, shards[0])
        return shards[0]
    return gathered(value, shards)


def gathered(value: ir.Value, shards: Sequence[np.ndarray]) -> np.ndarray:
    """Return the whole of a value that is cut."""
    sharded = value.meta[SHARDED]
    result = np.zeros(sharded.shape, shards[0].dtype)
    for rdu, shard in enumerate(shards):
        places = [np.arange(size) for size in sharded.shape]
        for split in sharded.axes:
            places[split.axis] = indices(split, rdu)
        result[np.ix_(*places)] = shard
    return result


def _execute(node: ir.Node, memories: list[Arrays], opset: int) -> None:
    (result, *_) = node.outputs
    if node.domain == SAMBA_DOMAIN:
        value = node.inputs[0]
        assert value is not None
        shards = [memory[value.name or ""] for memory in memories]
        if node.op_type == ALL_REDUCE:
            whole = np.sum(shards, axis=0, dtype=shards[0].dtype)
        else:
            whole = gathered(value, shards)
        for memory in memories:
            memory[result.name or ""] = whole
        return
    names = [value.name if value is not None else "" for value in node.inputs]
    graph = onnx.helper.make_graph(
        [ir.to_proto(node)],
        "node",
        [onnx.helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(names) if name],
        [onnx.helper.make_empty_tensor_value_info(value.name or "") for value in node.outputs],
    )
    imports = [onnx.helper.make_opsetid("", opset)]
    evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=imports))
    for memory in memories:
        results = evaluator.run(None, {name: memory[name] for name in names if name})
        for value, array in zip(node.outputs, results, strict=True):
            memory[value.name or ""] = np.asarray(array)
            stated = tuple(value.shape or ())
            assert memory[value.name or ""].shape == stated, (node, stated)
            assert value.dtype is not None
            assert memory[value.name or ""].dtype == value.dtype.numpy(), (node, value.dtype)
