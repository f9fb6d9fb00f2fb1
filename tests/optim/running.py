"""Parts of optimizers on plain onnxruntime: every region is one block of memory, as on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
import onnxruntime as ort
import torch

from samba_onnx.export.programs.optimizers import OptimizerParts, optimizer_parts
from samba_onnx.export.translation.element_types import onnx_type, torch_type
from samba_onnx.facts.names import gradient_name
from samba_onnx.optim import HyperparameterValue, OptimizerRecord, derive, optimizer_record
from samba_onnx.optim.argins import steps_after, with_settings
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Part
from samba_onnx.runtime.engine.lowerings.long_sums import add_in_stages


class PartRunner:
    """Runs parts in place: a new value is written over the old one while the part runs."""

    def __init__(self, records: Sequence[OptimizerRecord], parts: OptimizerParts) -> None:
        self.records = records
        self.parts = parts
        self.memory: dict[str, torch.Tensor] = {}
        self.steps = [(0,) * len(record.groups) for record in records]
        """Of each optimizer, how many steps the state of each group stands for."""
        self._sessions = [(part.type, self._bound(part)) for part in parts.update]
        for argin in parts.argins:
            self.memory[argin.name].fill_(argin.default)

    def region(self, name: str) -> torch.Tensor:
        return self.memory[self.parts.regions.get(name, name)]

    def run(
        self, *types: SectionType, hyperparameters: Mapping[str, HyperparameterValue] | None = None
    ) -> None:
        wanted = types or (SectionType.GRADNORM, SectionType.OPT)
        if SectionType.OPT in wanted:
            settings = hyperparameters or {}
            for index, record in enumerate(self.records):
                done = self.steps[index]
                following = [count + 1 for count in done]
                for name, value in derive(record, settings, following).items():
                    self.memory[name].fill_(value)
                self.steps[index] = steps_after(with_settings(record, settings), done)
        for kind, (session, binding) in self._sessions:
            if kind in wanted:
                session.run_with_iobinding(binding)

    def _bound(self, part: Part) -> tuple[ort.InferenceSession, ort.IOBinding]:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        model = ir.to_proto(part.model)
        add_in_stages(model)  # without it the norm of many gradients is not exact
        session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        binding = session.io_binding()
        for value in part.model.graph.inputs:
            binding.bind_input(*self._place(value))
        for value in part.model.graph.outputs:
            binding.bind_output(*self._place(value))
        return session, binding

    def _place(self, value: ir.Value) -> tuple[str, str, int, int, tuple[int, ...], int]:
        assert value.name is not None
        assert value.dtype is not None
        assert value.shape is not None
        shape = tuple(value.shape.numpy())
        region = self.parts.regions.get(value.name, value.name)
        tensor = self.memory.setdefault(region, torch.zeros(shape, dtype=torch_type(value.dtype)))
        assert (tensor.shape, tensor.dtype) == (shape, torch_type(value.dtype))
        return value.name, "cpu", 0, int(value.dtype), shape, tensor.data_ptr()


def prepare(
    optimizers: Sequence[torch.optim.Optimizer],
    names: Mapping[str, torch.Tensor],
) -> PartRunner:
    """Compile optimizers and put the parameters into device memory."""
    records = [optimizer_record(o, i, names) for i, o in enumerate(optimizers)]
    specs = {name: (onnx_type(t.dtype), tuple(t.shape)) for name, t in names.items()}
    parts = optimizer_parts(records, specs)
    runner = PartRunner(records, parts)
    for name, tensor in names.items():
        if name in runner.memory:
            runner.memory[name].copy_(tensor.detach())
        if f"{name}__master" in runner.memory:
            runner.memory[f"{name}__master"].copy_(tensor.detach())
    return runner


def set_gradients(runner: PartRunner, names: Mapping[str, torch.Tensor]) -> None:
    """Copy gradients from the host."""
    for name, tensor in names.items():
        if tensor.grad is not None and gradient_name(name) in runner.memory:
            runner.memory[gradient_name(name)].copy_(tensor.grad)
