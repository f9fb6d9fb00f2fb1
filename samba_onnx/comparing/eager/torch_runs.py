"""What torch computes of what a program computes: as it is, in float64, and with roundings added."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from samba_onnx.comparing.eager.dropouts import rates_at_zero
from samba_onnx.comparing.eager.roundings import Roundings, wide, widened
from samba_onnx.comparing.eager.running import members_of
from samba_onnx.comparing.outcome import NotComparableError
from samba_onnx.export.capture.branches import missing_values
from samba_onnx.export.capture.mixed_precision import promoting
from samba_onnx.export.capture.outputs import plain_outputs
from samba_onnx.export.capture.precision import computing
from samba_onnx.export.capture.restoring import members_replaced
from samba_onnx.export.programs.inference import Exported
from samba_onnx.facts.dtypes import dtype_name
from samba_onnx.facts.names import LOSSES, gradient_name, updated_name
from samba_onnx.facts.tolerances import spacing
from samba_onnx.functional.host_operators import HOST_OPERATORS
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.arrays import to_array
from samba_onnx.tensor.gradient_hooks import share_hooks

Results: TypeAlias = dict[str, NDArray[Any]]
"""Outputs, new values of what is written, and gradients, by the names that they have in a program."""

_Change: TypeAlias = Callable[[Tensor], Tensor]

FAILURES: Final = (RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError)
"""What modules and torch raise where a type is not the one that the program was written for."""


@dataclass(frozen=True)
class TorchRuns:
    """Runs of a module in torch; each leaves the module, its tensors and its buffers as they were."""

    module: nn.Module
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]
    exported: Exported
    trains: bool
    """Whether gradients of the losses are computed."""

    @property
    def leaves(self) -> list[Any]:
        """Flat inputs."""
        return pytree.tree_leaves((self.args, dict(self.keywords)))

    @functools.cached_property
    def native(self) -> Results:
        """Results of the module as it is.

        Raises:
            NotComparableError: A tensor has no values, or the module fails on those that there are,
                or draws random numbers.
        """
        missing = missing_values(self.module, (self.args, self.keywords))
        if missing:
            raise NotComparableError(missing)
        try:
            return self._run(_same, contextlib.nullcontext())
        except NotComparableError:
            raise
        except Exception as error:  # whatever the user's module raises, as for a wrong index
            text = " ".join(str(error).split())[:200]
            raise NotComparableError(
                f"torch itself fails on the given inputs, with {type(error).__name__}: {text}"
            ) from error

    @functools.cached_property
    def exact(self) -> Results | None:
        """Results in float64; None for a module that insists on another type, or has it already."""
        if self.unit < spacing("float32"):
            return None
        try:
            return self._run(wide, widened())
        except FAILURES:
            return None

    def moved(self, seed: int, amplitude: float, unit: float | None = None) -> Results | None:
        """Return the results after parameters, inputs and all that is computed moved by roundings.

        Args:
            seed: Seed of the amounts.
            amplitude: How many roundings each number may move.
            unit: One rounding; that of the module's coarsest type where None.

        Returns:
            Of float64 if there are results in float64; None where the module fails.
        """
        roundings = Roundings(amplitude * (self.unit if unit is None else unit), seed)
        context = contextlib.ExitStack()
        if self.exact is not None:
            context.enter_context(widened())
        try:
            with context:
                if self.exact is None:
                    return self._run(roundings.moved, roundings)
                return self._run(lambda tensor: roundings.moved(wide(tensor)), roundings)
        except FAILURES:
            return None

    @functools.cached_property
    def unit(self) -> float:
        """One rounding of the coarsest floating-point type that the module computes in."""
        graph_modules = [
            inner
            for inner in self.exported.captured.graph_module.modules()
            if isinstance(inner, fx.GraphModule)
        ]
        contents = (node.meta.get("val") for inner in graph_modules for node in inner.graph.nodes)
        types = {value.dtype for value in contents if isinstance(value, Tensor)}
        units = [spacing(dtype_name(dtype)) for dtype in types]
        return max((unit for unit in units if unit), default=spacing("float32"))

    def _run(self, change: _Change, context: contextlib.AbstractContextManager[Any]) -> Results:
        """Run the module once on changed copies of its tensors.

        Args:
            change: Returns a tensor's counterpart: itself, or another one.
            context: What the module runs within.
        """
        exported = self.exported
        twins: dict[int, Tensor] = {}
        parameters = dict(self.module.named_parameters(remove_duplicate=False))
        written = {id(parameters[p]) for p in exported.captured.updates if p in parameters}

        def counterpart(tensor: Tensor) -> Tensor:
            plain = _plain(tensor).detach()
            values = change(plain)
            is_parameter = isinstance(tensor, nn.Parameter)
            if values is plain and (id(tensor) in written or not is_parameter):
                values = plain.clone()
            if is_parameter:
                values = nn.Parameter(values, tensor.requires_grad)
                share_hooks(tensor, values)
            twins[id(tensor)] = values
            return twins[id(tensor)]

        args, keywords = pytree.tree_map(
            lambda leaf: (
                change(_plain(leaf).detach()).clone() if isinstance(leaf, Tensor) else leaf
            ),
            (self.args, dict(self.keywords)),
        )
        inputs = self._differentiated_inputs(args, keywords)
        rates = rates_at_zero() if exported.program.argins else contextlib.nullcontext()
        with (
            members_replaced(self.module, counterpart),
            torch.set_grad_enabled(self.trains),
            HOST_OPERATORS.paused(),
            rates,
            context,
        ):
            with computing(self.module) as state, promoting(self.module):
                returned = self.module(*args, **keywords)
            plain = plain_outputs(self.module, returned, args, keywords)
            outputs = pytree.tree_leaves(state.returned(plain))
            results = self._outputs(outputs)
            if self.trains:
                own = {n: twins[id(parameters[p])] for n, p in self._parameters(parameters)}
                results |= self._gradients(outputs, own | inputs)
            return {name: _values(tensor) for name, tensor in results.items()}

    def _differentiated_inputs(
        self, args: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Return the inputs that the program has gradients of, made leaves that require them."""
        flat = pytree.tree_leaves((args, dict(keywords)))
        residents = self.exported.program.residents
        leaves = {
            name: flat[position]
            for name, position in self.exported.inputs.items()
            if self.trains and gradient_name(name) in residents
        }
        for leaf in leaves.values():
            leaf.requires_grad_()
        return leaves

    def _parameters(self, parameters: Mapping[str, Tensor]) -> list[tuple[str, str]]:
        members = self.exported.members.items()
        return [(name, path) for name, path in members if path in parameters]

    def _outputs(self, outputs: list[Any]) -> dict[str, Tensor]:
        """Return outputs and new values of what was written, while the module still has them."""
        exported = self.exported
        pairs = zip(exported.outputs, outputs, strict=True)
        results = {name: output for name, output in pairs if name is not None}
        members = members_of(self.module)
        written = [path for path in exported.captured.updates if path in members]
        return results | {self.updated(path): members[path] for path in written}

    def updated(self, path: str) -> str:
        """Return the name of a member's new value: after its path, if no part of the program has it.

        Args:
            path: Path of a parameter or buffer that the module writes.
        """
        members = members_of(self.module)
        own = members[path]  # a shared one may have other paths, too
        known = self.exported.members.items()
        return updated_name(next((name for name, one in known if members.get(one) is own), path))

    def _gradients(self, outputs: list[Any], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        losses = set(json.loads(self.exported.program.metadata.get(LOSSES, "[]")))
        pairs = zip(self.exported.outputs, outputs, strict=True)
        chosen = [output for name, output in pairs if name in losses]
        leaves = {name: parameter for name, parameter in own.items() if parameter.requires_grad}
        seeds = [torch.ones_like(loss) for loss in chosen]
        if leaves:  # not autograd.grad, which leaves out hooks that run after accumulation
            torch.autograd.backward(chosen, seeds, inputs=list(leaves.values()))
        gradients = {name: _dense(leaf.grad) for name, leaf in leaves.items()}
        return {gradient_name(n): g for n, g in gradients.items() if g is not None}


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _dense(gradient: Tensor | None) -> Tensor | None:
    """Return a gradient as the device has it, with zeros for rows of a table that nothing looked up."""
    return gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient


def _plain(tensor: Tensor) -> Tensor:
    return tensor.torch_tensor() if isinstance(tensor, SambaTensor) else tensor


def _values(tensor: Tensor) -> NDArray[Any]:
    """Return values that nobody writes to any more."""
    return np.array(to_array(tensor))
