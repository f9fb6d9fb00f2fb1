"""An ONNX model as a module of torch's."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import onnx_ir as ir
from torch import Tensor, nn

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import SEPARATOR
from samba_onnx.importing.instructions import ImportedGraph, imported_graph
from samba_onnx.importing.interpreter import Interpreter
from samba_onnx.importing.model_losses import Loss
from samba_onnx.importing.original import Original, Source
from samba_onnx.importing.preparation import Prepared, prepare
from samba_onnx.importing.selection import is_known_operand
from samba_onnx.importing.suspicion import warn_if_folded
from samba_onnx.importing.values import Host, Value, stored_tensor
from samba_onnx.safety.files import printable
from samba_onnx.tensor.dtypes import FLOATING

__all__ = ["OnnxModule", "module_from_onnx"]

# Sizes, axes and pads have one number per axis of a tensor; a longer constant is a table that is
# read as data, and as a buffer it is written back and moves with the module.
_MOST_HOST = 64
"""Elements up to which a constant of integers or truth values may be part of shape arithmetic."""


class OnnxModule(nn.Module):
    """An ONNX model that computes with torch's operators; see ``module_from_onnx``.

    ``forward`` takes the model's inputs in their order or by keyword, then one label per loss, and
    returns the losses and then the model's outputs: a tensor where there is one, else a tuple.
    """

    def __init__(self, prepared: Prepared, losses: Sequence[Loss], source: Source) -> None:
        """Take over weights and constants; use ``module_from_onnx``."""
        super().__init__()
        self._graph: ImportedGraph = imported_graph(prepared.model)
        self._losses = tuple(losses)
        self._inputs = tuple(self._graph.slots[value] for value in prepared.inputs)
        self._outputs = tuple(value.name or "" for value in prepared.model.graph.outputs)
        # Before the weights are copied: a name that is wrong is told at once.
        _check_losses(self._losses, self._outputs, [value.name or "" for value in prepared.inputs])
        # Losses may share a label, which is one input then.
        labels = dict.fromkeys(loss.label for loss in self._losses)
        self._names = (*(value.name or "" for value in prepared.inputs), *labels)
        self._keywords = _identifiers(self._names)
        self._hosts: dict[int, Host] = {}
        self._tensors: dict[int, str] = {}
        self._onnx_names: dict[str, str] = {}
        for value, tensor in prepared.weights.items():
            self._register(value, tensor, nn.Parameter(stored_tensor(tensor)))
        for value, tensor in prepared.constants.items():
            if _is_buffer(value, tensor):
                self._register(value, tensor, stored_tensor(tensor))
            else:
                self._hosts[self._graph.slots[value]] = Host(tensor.numpy())
        # Only what is in the model under its own name can be written back. Constants that a pass
        # computed keep no name that the model knows.
        written = {value.name or "" for value in prepared.weights} | prepared.originals
        self._original = Original.of(source, written & set(self._onnx_names.values()))
        derived = {key for key, name in self._onnx_names.items() if name not in written}
        # nn.Module has no other way to say this of a buffer that is registered already.
        self._non_persistent_buffers_set |= derived  # a state_dict holds what the model holds

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the model's inputs, then of the labels."""
        return self._names

    @property
    def input_keywords(self) -> tuple[str, ...]:
        """The names of ``input_names`` as ``forward`` takes them by keyword."""
        return self._keywords

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The losses that were attached."""
        return self._losses

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the losses, then of the model's outputs."""
        return (*(loss.output_name for loss in self._losses), *self._outputs)

    @property
    def loss_indices(self) -> tuple[int, ...]:
        """Places of the losses that were attached, among the outputs."""
        return tuple(range(len(self._losses)))

    @property
    def onnx_names(self) -> Mapping[str, str]:
        """Name in the ONNX model of each parameter and buffer, by its name in this module."""
        return MappingProxyType(self._onnx_names)

    @property
    def trained_names(self) -> tuple[str, ...]:
        """Names in the ONNX model of the parameters, in their order."""
        return tuple(self._onnx_names[name] for name, _ in self.named_parameters())

    @property
    def original(self) -> Original:
        """The model as given, without what this module holds."""
        return self._original

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Compute losses and outputs.

        Args:
            *inputs: In the order of ``input_names``.
            **named: By name; characters that Python does not allow in names are underscores.

        Returns:
            In the order of ``output_names``; alone where there is one.

        Raises:
            UsageError: An input is missing, unknown or given twice.
            ModelError: The model cannot be computed by torch.
        """
        operands = self._bind(inputs, named)
        values: dict[int, Value] = dict(self._hosts)
        tensors = {slot: getattr(self, name) for slot, name in self._tensors.items()}
        values.update(tensors)
        values.update(zip(self._inputs, operands, strict=False))
        # A parameter that serves as a moving statistic is trained, and must not be overwritten.
        moving = {
            slot: value for slot, value in tensors.items() if not isinstance(value, nn.Parameter)
        }
        run = Interpreter(values, self._graph.opset, training=self.training, moving=moving)
        outputs = [_as_output(value) for value in run.run(self._graph.body)]
        # Labels stand behind the model's inputs in `_names`, once each however many losses read
        # them.
        labels = dict(
            zip(self._names[len(self._inputs) :], operands[len(self._inputs) :], strict=True)
        )
        results = [
            loss.compute(outputs[self._outputs.index(loss.output)], labels[loss.label])
            for loss in self._losses
        ]
        results += outputs
        return results[0] if len(results) == 1 else tuple(results)

    def _bind(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """Return all inputs in their order."""
        if len(inputs) > len(self._names):
            raise UsageError(
                f"{len(inputs)} inputs were given, the model takes {len(self._names)}: "
                f"{', '.join(self._names)}"
            )
        operands = dict(zip(self._keywords, inputs, strict=False))
        places = dict(zip(self._names, self._keywords, strict=True))
        for name, value in named.items():
            # Both the name in the model and the keyword that was made of it are understood.
            keyword = places.get(name, name)
            if keyword not in self._keywords:
                raise UsageError(
                    f"the model has no input {printable(name)!r}; it has {', '.join(self._names)}"
                )
            if keyword in operands:
                raise UsageError(f"input {printable(name)!r} was given twice")
            operands[keyword] = value
        missing = [
            n for n, key in zip(self._names, self._keywords, strict=True) if key not in operands
        ]
        if missing:
            raise UsageError(f"the model also needs {', '.join(missing)}")
        return [operands[keyword] for keyword in self._keywords]

    def _register(self, value: ir.Value, tensor: ir.TensorProtocol, member: Tensor) -> None:
        name = attribute_name(value.name or "weight")
        # nn.Module has attributes like `training` or `forward` that a weight must not hide.
        while hasattr(self, name):
            name += "_"
        if isinstance(member, nn.Parameter):
            self.register_parameter(name, member)
        else:
            self.register_buffer(name, member)
        self._tensors[self._graph.slots[value]] = name
        self._onnx_names[name] = value.name or ""


def module_from_onnx(
    model: Source,
    *,
    weights: Collection[str] | None = None,
    losses: Sequence[Loss] = (),
) -> OnnxModule:
    """Return a module that computes what an ONNX model computes, and can be trained.

    Dropout drops, and moving statistics move, where the graph says training and the module is in
    training mode; an inference export has neither. Constants are buffers, but for small ones of
    shape arithmetic.

    Args:
        model: A path, or a model in memory with its data inside; it is not changed.
        weights: Names of the initializers that become parameters; by default those that the
            exporter of torch marked as parameters, else all that are floating point, have at least
            one axis, and are no statistics, sizes or masks.
        losses: Losses to build on outputs, each with an input for its label.

    Returns:
        A module in training mode.

    Raises:
        ModelError: The model cannot be loaded, or an operator has no counterpart in torch.
        UsageError: A name of a weight or loss is wrong.

    Warns:
        FoldedWeightsWarning: The model was optimised for inference, and trains differently.

    Example:
        >>> loss = Loss("cross_entropy", "logits", "labels")
        >>> module = module_from_onnx("model.onnx", losses=[loss])  # doctest: +SKIP
        >>> value, logits = module(images, labels)  # doctest: +SKIP
    """
    prepared = prepare(model, weights)
    warn_if_folded(prepared)
    labels = dict.fromkeys(loss.label for loss in losses)
    kind = _module_type(_identifiers([*(value.name or "" for value in prepared.inputs), *labels]))
    return kind(prepared, losses, model)


def _module_type(names: Sequence[str]) -> type[OnnxModule]:
    """Return a subclass whose ``forward`` shows its inputs by name, which tracers look at."""

    def forward(self: OnnxModule, *inputs: Tensor, **named: Tensor) -> Tensor | tuple[Tensor, ...]:
        return OnnxModule.forward(self, *inputs, **named)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [own, *(inspect.Parameter(name, kind) for name in names)]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    forward.__doc__ = OnnxModule.forward.__doc__
    # A class for each module, as the signature belongs to the function and not to its object.
    return type("OnnxModule", (OnnxModule,), {"forward": forward})


def attribute_name(name: str) -> str:
    """Return what a module made of an ONNX model calls an initializer, as its ``state_dict`` does.

    Args:
        name: In the ONNX model.
    """
    # torch forbids dots in names of parameters, and SambaFlow's names have two underscores there. A
    # character that is no letter or digit would make no attribute.
    return re.sub(r"\W", "_", name.replace(".", SEPARATOR))


def _identifiers(names: Sequence[str]) -> tuple[str, ...]:
    """Return names that Python accepts for arguments, all different."""
    taken: dict[str, None] = {}
    for name in names:
        free = re.sub(r"\W", "_", name)
        # A name like `0` or `1x` starts with a digit, and a name like `a b` is mended already.
        free = free if free.isidentifier() else f"input_{free}"
        # The signature of `forward` has a `self` already.
        while free in taken or free == "self":
            free += "_"
        taken[free] = None
    return tuple(taken)


def _check_losses(losses: Sequence[Loss], outputs: Sequence[str], inputs: Sequence[str]) -> None:
    names = list(outputs)
    for loss in losses:
        if loss.output not in outputs:
            raise UsageError(
                f"a loss is to be built on {printable(loss.output)!r}, but the model's outputs are "
                f"{', '.join(outputs)}"
            )
        if loss.label in inputs:
            raise UsageError(
                f"label {printable(loss.label)!r} is an input of the model already: choose another "
                "name"
            )
        if loss.output_name in names:
            raise UsageError(
                f"two outputs are named {printable(loss.output_name)!r}: give the loss a name"
            )
        names.append(loss.output_name)


def _is_buffer(value: ir.Value, tensor: ir.TensorProtocol) -> bool:
    # Sizes, scales and axes decide shapes while the graph is traced; a buffer is a tensor, whose
    # content is unknown then.
    if is_known_operand(value):
        return False
    # A scalar is cheaper as a constant of the graph than as a buffer that every run is given.
    if tensor.dtype in FLOATING:
        return len(tensor.shape) > 0
    return tensor.size > _MOST_HOST


def _as_output(value: Value) -> Any:
    if isinstance(value, Host):
        return value.tensor()
    if isinstance(value, list):
        return [_as_output(item) for item in value]
    return value
