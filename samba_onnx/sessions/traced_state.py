"""The graphs of the loaded program that were traced in this process, and their tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from samba_onnx.errors import InputError, UsageError
from samba_onnx.export.capture.surroundings import KEEPERS
from samba_onnx.optim import MASTER, state_name
from samba_onnx.pef.manifest import Manifest, Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.sessions.store import places
from samba_onnx.sessions.traced import TracedGraph, empty_tensor
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.host_side import Materializer

_MOST_LISTED = 12


class TracedState:
    """What a session knows by name: traced graphs and tensors, and tensors that users add."""

    def __init__(self) -> None:
        """Begin with nothing traced."""
        self.graphs: dict[str, TracedGraph] = {}
        """Traced graphs by the name that they have in the PEF."""
        self.tensors: dict[str, dict[str, SambaTensor]] = {
            group: {} for group in ("inputs", "outputs", "weights", "buffers", "grads")
        }
        """Traced tensors by group and name."""
        self.optimizer_states: dict[str, SambaTensor] = {}
        """State of the optimizers on the device, by name; without values on the host, but with a
        materializer of those that the device begins with."""
        self.host_inputs: dict[str, torch.Tensor] = {}
        """Traced inputs that only the host reads, by symbol: the next run takes them along."""
        self.renamed = False
        """Whether a graph's tensors have other names than the PEF's symbols."""
        self._added: dict[str, SambaTensor] = {}
        KEEPERS.add(self)

    def keep(self) -> Callable[[], None]:
        """Return what takes back what is added from now on, as by a module that is traced."""
        added = dict(self._added)

        def restore() -> None:
            self._added = added

        return restore

    def clear(self) -> None:
        """Forget what was traced; tensors that users added stay."""
        self.graphs.clear()
        self.host_inputs.clear()
        self.optimizer_states.clear()
        self.renamed = False
        for group in self.tensors.values():
            group.clear()

    def adopt(self, traced: TracedGraph, manifest: Manifest) -> None:
        """Take a traced graph and its tensors in.

        Args:
            traced: With the name that it has in the PEF.
            manifest: The PEF's manifest.
        """
        self.graphs[traced.name] = traced
        # One graph with other names is enough: every request is translated then.
        self.renamed = self.renamed or bool(traced.symbols)
        members = places(manifest)
        self.tensors["grads"] |= _places(manifest, SymbolKind.GRADIENT)
        self.optimizer_states |= _places(manifest, SymbolKind.OPTIMIZER_STATE)
        for name, tensor in self.optimizer_states.items():
            # A copy of a weight begins as the weight, which only its optimizer knows.
            if not name.endswith(state_name("", MASTER)):
                tensor.materializer = _zeros
        self.tensors["inputs"] |= {tensor.sn_name: tensor for tensor in traced.inputs}
        self.tensors["outputs"] |= {tensor.sn_name: tensor for tensor in traced.outputs}
        for name, tensor in traced.residents.items():
            symbol = members.get(name)
            is_buffer = symbol is not None and symbol.kind is SymbolKind.BUFFER
            group = "buffers" if is_buffer else "weights"
            self.tensors[group][name] = tensor

    def promise(self, materializers: Mapping[str, Materializer]) -> None:
        """Let states of optimizers become what the host's optimizers have.

        Args:
            materializers: By the name of the state; names that the program does not have are left
                out.
        """
        for name, materializer in materializers.items():
            if name in self.optimizer_states:
                self.optimizer_states[name].materializer = materializer

    def __iter__(self) -> Iterator[SambaTensor]:
        """Iterate over every traced tensor, once."""
        # Copies: a materializer that runs meanwhile may trace or forget tensors.
        for group in tuple(self.tensors.values()):
            yield from tuple(group.values())
        yield from tuple(self.optimizer_states.values())

    def all_but_optimizer_states(self) -> tuple[SambaTensor, ...]:
        """Return every traced tensor but the states of optimizers, which are in ``optim_dict``.

        Programs send those that have data themselves, after tracing with ``transfer_device=False``.
        """
        return tuple(tensor for group in self.tensors.values() for tensor in group.values())

    def get_samba_tensor_by_name(self, name: str) -> SambaTensor:
        """Return a traced tensor; nothing is copied.

        Args:
            name: Its name.

        Raises:
            InputError: No such tensor was traced.
        """
        for tensor in self:
            if tensor.sn_name == name:
                return tensor
        raise InputError(f"tensor {name!r} was not traced; traced were {self.listing()}")

    def forget(self, name: str) -> None:
        """Forget a traced tensor.

        Args:
            name: Its name.
        """
        for group in self.tensors.values():
            group.pop(name, None)
        self.host_inputs.pop(name, None)

    def listing(self) -> str:
        """Return the names of traced tensors for a message, the first few."""
        known = [tensor.sn_name for tensor in self]
        more = ", ..." if len(known) > _MOST_LISTED else ""
        return (", ".join(map(repr, known[:_MOST_LISTED])) + more) or "none"

    def add_aux_tensor(self, tensor: SambaTensor, name: str) -> None:
        """Keep a tensor by name, beside those that are traced.

        Args:
            tensor: Any.
            name: Its name.

        Raises:
            UsageError: The name is taken.
        """
        if not self.is_valid_aux_tensor_name(name):
            raise UsageError(f"there is a tensor {name!r} already; give this one another name")
        self._added[name] = tensor

    def is_valid_aux_tensor_name(self, name: str) -> bool:
        """Whether ``add_aux_tensor`` may be given a name.

        Args:
            name: Any text.
        """
        traced = any(name in group for group in self.tensors.values())
        return bool(name) and not traced and name not in self._added


def _zeros(tensor: torch.Tensor) -> torch.Tensor:
    """What torch's first step finds: the materializer of a state that the host does not have."""
    return torch.zeros(tuple(tensor.shape))


def _places(manifest: Manifest, kind: SymbolKind) -> dict[str, SambaTensor]:
    """Tensors without values for the symbols of a kind that name a region of their own."""

    def owns(symbol: Symbol) -> bool:
        return symbol.kind is kind and symbol.name == symbol.region

    return {symbol.name: empty_tensor(symbol) for symbol in manifest.symbols if owns(symbol)}
