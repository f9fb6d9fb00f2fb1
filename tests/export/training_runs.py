"""Runs training programs with plain onnxruntime, and torch as what they are compared with."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from samba_onnx.export.programs.inference import Exported
from samba_onnx.facts.names import LOSSES
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Part
from samba_onnx.runtime.engine.lowerings.dropout_masks import expand_dropout_masks
from samba_onnx.runtime.engine.lowerings.pipeline import lower
from samba_onnx.runtime.engine.lowerings.stage_model import StageModel

Array = npt.NDArray[Any]


class Machine:
    """Executes the parts of a program one after another; its memory is a dictionary of regions."""

    def __init__(self, exported: Exported) -> None:
        self.exported = exported
        self.program = exported.program
        self.masks: dict[int, Tensor] = {}
        """Of the last run, by stream."""
        self._memory: dict[str, Array] = {}
        self._sections = [_Section(part) for part in self.program.parts]
        for argin in self.program.argins:
            dtype = np.int32 if argin.type == "tensor(int32)" else np.float32
            self._memory[argin.name] = np.array(argin.default, dtype)

    def load(self, module: nn.Module) -> None:
        """Copy parameters and buffers into memory, and ones into the gradients of losses."""
        tensors = dict(module.named_parameters(remove_duplicate=False))
        tensors |= dict(module.named_buffers(remove_duplicate=False))
        for name, path in self.exported.members.items():
            self[name] = tensors[path]
        outputs = {v.name: v for part in self.program.parts for v in part.model.graph.outputs}
        for loss in self.losses:
            value = outputs[loss]
            assert value.shape is not None
            assert value.dtype is not None
            self._memory[f"{loss}__grad"] = np.ones(value.shape.numpy(), value.dtype.numpy())

    @property
    def losses(self) -> list[str]:
        """Names of the outputs that training starts from."""
        found: list[str] = json.loads(self.program.metadata.get(LOSSES, "[]"))
        return found

    def give(self, inputs: Any) -> None:
        """Copy the module's inputs into memory."""
        flat = pytree.tree_leaves(inputs)
        for name, position in self.exported.inputs.items():
            self[name] = flat[position]

    def set_argins(self, ending: str, value: float) -> None:
        """Set all argins whose names end in something."""
        for argin in self.program.argins:
            if argin.name.endswith(ending):
                held = self._memory[argin.name]
                self._memory[argin.name] = np.array(value, held.dtype)

    def run(self, *types: SectionType) -> None:
        """Execute the parts of some types, or all."""
        for section in self._sections:
            if types and section.type not in types:
                continue
            read = {name: self._memory[self._region(name)] for name in section.inputs}
            results, masks = section.run(read)
            self.masks |= masks
            for name, content in results.items():
                self._memory[self._region(name)] = content

    def __getitem__(self, name: str) -> Tensor:
        content = self._memory[self._region(name)]
        if content.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(content.astype(np.float32)).bfloat16()
        return torch.from_numpy(np.array(content))

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        plain = tensor.detach().as_subclass(Tensor)
        if plain.dtype == torch.bfloat16:
            content = plain.float().numpy().astype(ml_dtypes.bfloat16)
        else:
            content = plain.numpy().copy()
        self._memory[self._region(name)] = content

    def _region(self, name: str) -> str:
        return self.program.regions.get(name, name)


class _Section:
    """One part in an onnxruntime session, which returns dropout masks besides its outputs."""

    def __init__(self, part: Part) -> None:
        self.type = part.type
        model = ir.to_proto(part.model)
        onnx.checker.check_model(_checkable(model), full_check=True)
        self.outputs = [output.name for output in model.graph.output]
        self.inputs = [given.name for given in model.graph.input]
        self._streams = _return_masks(model, self.outputs)
        expand_dropout_masks(model)
        self._narrow = _exchange_in_float32(model)
        stage = StageModel(model)
        lower(stage)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = ort.InferenceSession(
            model.SerializeToString(), options, disabled_optimizers=list(stage.disabled_optimizers)
        )

    def run(self, values: Mapping[str, Array]) -> tuple[dict[str, Array], dict[int, Tensor]]:
        """Return outputs by name, and masks by stream."""
        given = {
            f"{name}__float" if name in self._narrow else name: content.astype(np.float32)
            if name in self._narrow
            else content
            for name, content in values.items()
        }
        names = [f"{n}__float" if n in self._narrow else n for n in self.outputs]
        found = self._session.run([*names, *self._streams], given)
        pairs = zip(self.outputs, found, strict=False)
        outputs = {n: a.astype(ml_dtypes.bfloat16) if n in self._narrow else a for n, a in pairs}
        masks = map(torch.from_numpy, found[len(names) :])
        return outputs, dict(zip(self._streams.values(), masks, strict=True))


def _exchange_in_float32(model: onnx.ModelProto) -> set[str]:
    """Give and take bfloat16 values as float32, which numpy has; return their names."""
    narrow = set()
    for values in (model.graph.input, model.graph.output):
        for value in values:
            if value.type.tensor_type.elem_type != onnx.TensorProto.BFLOAT16:
                continue
            narrow.add(value.name)
            name, wide = value.name, f"{value.name}__float"
            if values is model.graph.input:
                node = onnx.helper.make_node("Cast", [wide], [name], to=onnx.TensorProto.BFLOAT16)
                model.graph.node.insert(0, node)
            else:
                node = onnx.helper.make_node("Cast", [name], [wide], to=onnx.TensorProto.FLOAT)
                model.graph.node.append(node)
            value.name = wide
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return narrow


def _return_masks(model: onnx.ModelProto, outputs: Sequence[str]) -> dict[str, int]:
    """Make dropout masks outputs that are none yet; return the stream of each by its name."""
    streams = {}
    for node in model.graph.node:
        if node.op_type == "DropoutMask":
            attributes = {a.name: a for a in node.attribute}
            streams[node.output[0]] = attributes["stream"].i
            if node.output[0] not in outputs:
                shape = list(attributes["shape"].ints)
                info = onnx.helper.make_tensor_value_info(
                    node.output[0], onnx.TensorProto.BOOL, shape
                )
                model.graph.output.append(info)
    return streams


def _checkable(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that onnx's checker knows all operators of."""
    known = onnx.ModelProto()
    known.CopyFrom(model)
    expand_dropout_masks(known)
    return known


@dataclass(frozen=True)
class Truth:
    """What torch computes: outputs, gradients by path, buffers by path."""

    outputs: Sequence[Any]
    gradients: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]


def eager(module: nn.Module, inputs: Any, losses: Sequence[int], dtype: torch.dtype) -> Truth:
    """Differentiate a copy of a module with torch.

    Args:
        module: Left as it is.
        inputs: Arguments of ``forward``.
        losses: Positions of the outputs that training starts from.
        dtype: To compute in.
    """
    twin = copy.deepcopy(module).to(dtype)
    cast = pytree.tree_map(lambda leaf: _cast(leaf, dtype), inputs)
    outputs = pytree.tree_leaves(twin(**cast) if isinstance(cast, dict) else twin(*cast))
    chosen = [outputs[index] for index in losses]
    torch.autograd.backward(chosen, [torch.ones_like(loss) for loss in chosen])
    return Truth(
        [o.detach() if isinstance(o, Tensor) else o for o in outputs],
        {path: p.grad for path, p in twin.named_parameters() if p.grad is not None},
        dict(twin.named_buffers()),
    )


def _cast(leaf: Any, dtype: torch.dtype) -> Any:
    real = isinstance(leaf, Tensor) and leaf.is_floating_point()
    return leaf.to(dtype) if real else leaf


def compare(machine: Machine, module: nn.Module, inputs: Any) -> None:
    """Compare outputs, all gradients and all buffers of one step with torch's.

    The oracle is torch in float64; what is allowed is ten times the error that torch itself makes
    in the module's own type, and what rounding a few sums of float32 costs.

    Args:
        machine: After a run.
        module: As it was before the run.
        inputs: Of the run.
    """
    outputs = machine.exported.outputs
    losses = [outputs.index(loss) for loss in machine.losses]
    dtype = next(p.dtype for p in module.parameters() if p.is_floating_point())
    truth = eager(module, inputs, losses, torch.float64)
    own = eager(module, inputs, losses, dtype)
    unit = 1e-6 if dtype == torch.float32 else 4e-3
    scale = max(float(g.abs().max()) for g in truth.gradients.values())
    for position, name in enumerate(outputs):
        if name is not None:
            pair = (own.outputs[position], truth.outputs[position])
            assert_within(name, machine[name], *pair, unit)
    paths = {f"{name}__grad": path for name, path in machine.exported.members.items()}
    given = {n: p for n, p in paths.items() if n in machine.program.residents}
    assert set(given.values()) == set(truth.gradients)
    for name, path in given.items():
        pair = (own.gradients[path], truth.gradients[path])
        assert_within(name, machine[name], *pair, unit, scale=scale)
    for name, path in machine.exported.members.items():
        if path in truth.buffers:
            assert_within(name, machine[name], own.buffers[path], truth.buffers[path], unit)


def assert_within(
    name: str, ours: Tensor, own: Tensor, truth: Tensor, unit: float, scale: float = 0.0
) -> None:
    """Check one value against float64, given what torch makes of it in the module's own type."""
    assert ours.shape == truth.shape, name
    assert ours.dtype == own.dtype, name
    if ours.numel() == 0:
        return
    exact = truth.double()
    allowed = 10 * float((own.double() - exact).abs().max())
    allowed += unit * max(float(exact.abs().max()), 0.1 * scale)
    error = float((ours.double() - exact).abs().max())
    assert error <= allowed, f"{name}: off by {error:.2e}, torch itself by {allowed / 10:.2e}"


def with_masks(module: nn.Module, masks: Mapping[int, Tensor], rates: Sequence[float]) -> nn.Module:
    """Return a module whose dropouts take given masks, in the order in which they are called."""
    twin = copy.deepcopy(module)
    order: Iterator[int] = itertools.cycle(range(len(rates)))

    def forward(self: nn.Module, value: Tensor) -> Tensor:
        stream = next(order)
        return value * masks[stream].to(value.dtype) / (1 - rates[stream])

    for inner in twin.modules():
        if "Dropout" in type(inner).__name__:
            inner.forward = forward.__get__(inner)  # type: ignore[method-assign]
    return twin
