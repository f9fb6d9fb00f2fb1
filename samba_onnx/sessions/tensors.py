"""The part of a session that reads and writes tensors on the device between runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.optim import Optimizer

from samba_onnx.errors import InputError, NoDeviceError, UsageError
from samba_onnx.export.programs.training_steps import parameter_names
from samba_onnx.facts.names import RATE, SEED, SEPARATOR
from samba_onnx.optim.argins import hyperparameter_names
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.sessions.optimizer_steps import fetch_state, send_state
from samba_onnx.sessions.ordered_set import OrderedSet
from samba_onnx.sessions.running import wrapped
from samba_onnx.sessions.state import SessionState
from samba_onnx.sessions.traced import host_buffers, host_parameters
from samba_onnx.tensor import DEVICE, SambaTensor
from samba_onnx.tensor.marks import Marks
from samba_onnx.workflows.records import read_optimizers


class Tensors(SessionState):
    """Tensors by name, on host and device."""

    def get_tensors(self, samba_tensors: Sequence[SambaTensor]) -> tuple[SambaTensor, ...]:
        """Copy the values that tensors have on the device.

        Args:
            samba_tensors: Tensors that were traced; they stay as they are.

        Returns:
            New tensors with these names, in memory of their own.

        Raises:
            NotTracedError: No graph was traced.
            InputError: The device has no such tensor.
            ScheduleError: It has no value now.
        """
        self._open()
        tensors = [samba_tensors] if isinstance(samba_tensors, SambaTensor) else samba_tensors
        return tuple(self._read(t.sn_name, t.sn_region_name) for t in tensors)

    def get_tensors_by_name(self, names: Sequence[str]) -> tuple[SambaTensor, ...]:
        """Copy values from the device.

        Args:
            names: Names of tensors or regions.

        Returns:
            New tensors with these names, in memory of their own.

        Raises:
            NotTracedError: No graph was traced.
            InputError: The device has no such tensor.
            ScheduleError: It has no value now.
        """
        self._open()
        listed = [names] if isinstance(names, str) else names
        return tuple(self._read(name, name) for name in listed)

    def get_samba_tensor_by_name(self, name: str) -> SambaTensor:
        """Return a traced tensor; nothing is copied.

        Args:
            name: Its name.

        Raises:
            InputError: No such tensor was traced.
        """
        for tensor in self._traced_tensors():
            if tensor.sn_name == name:
                return tensor
        known = [tensor.sn_name for tensor in self._traced_tensors()]
        listed = ", ".join(map(repr, known[:12])) + (", ..." if len(known) > 12 else "")
        raise InputError(f"tensor {name!r} was not traced; traced were {listed or 'none'}")

    def update_tensor(self, name: str, tensor: SambaTensor | None) -> None:
        """Replace the host side of a traced tensor, or forget it; ``to_device`` sends it.

        Args:
            name: Its name.
            tensor: The new values; None forgets the tensor.

        Raises:
            InputError: No such tensor was traced, or shape or dtype differ.
        """
        old = self.get_samba_tensor_by_name(name)
        if tensor is None:
            for group in self.tensor_dict.values():
                group.pop(name, None)
            self._held.pop(name, None)
            return
        if not isinstance(tensor, torch.Tensor):
            raise UsageError(
                f"tensor {name!r} was to become {type(tensor).__name__}; give a tensor, or None"
            )
        if tensor.shape != old.shape or tensor.dtype != old.dtype:
            raise InputError(
                f"tensor {name!r} is {old.dtype} of shape {list(old.shape)}; it was given "
                f"{tensor.dtype} of shape {list(tensor.shape)}"
            )
        values = tensor.torch_tensor() if isinstance(tensor, SambaTensor) else tensor
        old.data = values.detach()
        if name in self._held:
            self._held[name] = old

    def to_device(self) -> None:
        """Send every traced tensor that has values on the host to the device.

        Values that were not made yet are made, one by one, and dropped again.

        Raises:
            NotTracedError: No graph was traced.
        """
        self._open()
        for tensor in self._traced_tensors():
            if DEVICE.has(tensor.sn_region_name) and (
                tensor.has_data or tensor.materializer_provided
            ):
                place = tensor.sn_region_name
                DEVICE.store(place).write(place, tensor.torch_tensor().detach())

    def get_weight_names(self) -> list[str]:
        """Return the names of all weights of the PEF.

        Raises:
            NotTracedError: The session has no PEF.
        """
        manifest = self._manifest()
        # What an optimizer writes is the same weight under another name.
        updates = {name for stage in manifest.stages().values() for name in stage.outputs}
        weights = [symbol.name for symbol in manifest.symbols if symbol.kind is SymbolKind.WEIGHT]
        return [name for name in weights if name not in updates]

    def get_argin_names(self) -> OrderedSet[str]:
        """Return the names of the scalars that a run may be given: keys of ``hyperparam_dict``.

        Raises:
            NotTracedError: The session has no PEF.
        """
        argins = [argin.name for argin in self._manifest().argins]
        names: list[str] = []
        for record in read_optimizers(self._manifest()):
            # What the optimizer's sections read is derived from these.
            names += hyperparameter_names(record)
            argins = [name for name in argins if not name.startswith(f"{record.name}{SEPARATOR}")]
        return OrderedSet([*names, *argins])

    def get_dropout_rate_argin_names(self) -> list[str]:
        """Return the names of the rates of the dropouts.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return [name for name in self.get_argin_names() if name.endswith(RATE)]

    def get_dropout_seed_argin_names(self) -> list[str]:
        """Return the names of the seeds of the dropouts.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return [name for name in self.get_argin_names() if name.endswith(SEED)]

    def get_section_types(self) -> set[str]:
        """Return the types of the sections of the PEF.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return {stage.type.value for stage in self._manifest().stages().values()}

    def get_section_ids(self) -> list[int]:
        """Return the ids of the sections and fallbacks of the PEF, in the order of the schedule.

        Raises:
            NotTracedError: The session has no PEF.
        """
        calls = [call for graph in self._manifest().graphs for call in graph.calls]
        return list(dict.fromkeys(call.stage for call in calls))

    @classmethod
    def to_cpu(
        cls, model: nn.Module, optims: Sequence[Optimizer] | None = None, inplace: bool = False
    ) -> None:
        """Copy parameters, buffers and optimizer state from the device to the host.

        Args:
            model: The module that was traced; tensors that the device does not have are left out.
            optims: Its optimizers.
            inplace: Write into the memory that the host's tensors have. Otherwise they get new.

        Raises:
            NoDeviceError: No program is loaded.
        """
        for tensor in _on_device(_tensors(model)):
            tensor.cpu(inplace)
        for optimizer in _optimizers(optims):
            fetch_state(optimizer, parameter_names(model), inplace)

    @classmethod
    def to_cpu_(cls, model: nn.Module, optims: Sequence[Optimizer] | None = None) -> None:
        """``to_cpu`` into the memory that the host's tensors have.

        Args:
            model: The module that was traced.
            optims: Its optimizers.

        Raises:
            NoDeviceError: No program is loaded.
        """
        cls.to_cpu(model, optims, inplace=True)

    @classmethod
    def to_rdu(cls, model: nn.Module, optims: Sequence[Optimizer] | None = None) -> None:
        """Copy parameters, buffers and optimizer state from the host to the device.

        Args:
            model: The module that was traced; tensors that the device does not have are left out.
            optims: Its optimizers.

        Raises:
            NoDeviceError: No program is loaded.
        """
        for tensor in _on_device(_tensors(model)):
            tensor.rdu()
        for optimizer in _optimizers(optims):
            send_state(optimizer, parameter_names(model))

    @classmethod
    def sync_buffers_to_cpu(cls, model: nn.Module, inplace: bool = False) -> None:
        """Copy buffers from the device to the host.

        Args:
            model: The module that was traced.
            inplace: Write into the memory that the host's buffers have.

        Raises:
            NoDeviceError: No program is loaded.
        """
        for tensor in _on_device(host_buffers(model)):
            tensor.cpu(inplace)

    @classmethod
    def sync_buffers_to_rdu(cls, model: nn.Module) -> None:
        """Copy buffers from the host to the device.

        Args:
            model: The module that was traced.

        Raises:
            NoDeviceError: No program is loaded.
        """
        for tensor in _on_device(host_buffers(model)):
            tensor.rdu()

    def _traced_tensors(self) -> Iterator[SambaTensor]:
        """Every traced tensor, once."""
        for group in tuple(self.tensor_dict.values()):
            yield from tuple(group.values())
        yield from tuple(self.optim_dict.values())

    def _read(self, name: str, region: str) -> SambaTensor:
        symbols = {graph.symbol(name) for graph in self._traced.values()} or {name}
        place = next((place for place in (name, *symbols, region) if DEVICE.has(place)), name)
        if not DEVICE.has(place):
            known = [tensor.sn_name for tensor in self._traced_tensors()]
            listed = ", ".join(map(repr, known[:12])) + (", ..." if len(known) > 12 else "")
            raise InputError(f"the device has no tensor {name!r}; traced were {listed or 'none'}")
        marks = Marks(name=name, region_name="" if region == name else region)
        return wrapped(DEVICE.store(place).read(place), marks)


def _tensors(model: nn.Module) -> dict[str, SambaTensor]:
    return {**host_parameters(model), **host_buffers(model)}


def _optimizers(optims: Sequence[Optimizer] | Optimizer | None) -> tuple[Optimizer, ...]:
    if optims is None:
        return ()
    return (optims,) if isinstance(optims, Optimizer) else tuple(optims)


def _on_device(tensors: dict[str, SambaTensor]) -> Iterator[SambaTensor]:
    """Tensors that the device has, each once."""
    if not DEVICE.attached:
        raise NoDeviceError(
            "no program is loaded, so that nothing is on a device: call "
            "samba.utils.trace_graph(model, inputs, pef=...) first"
        )
    seen: set[int] = set()
    for tensor in tensors.values():
        if id(tensor) not in seen and DEVICE.has(tensor.sn_region_name):
            seen.add(id(tensor))
            yield tensor
