"""The guard that compares a model's interface after every pass."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.errors import InternalError
from samba_onnx.program.value_types import type_text

Dimension = int | str | None


@dataclass(frozen=True)
class Port:
    """A graph input or output as the user sees it."""

    name: str
    type: str
    shape: tuple[Dimension, ...] | None

    def __str__(self) -> str:
        shape = "?" if self.shape is None else ",".join(str(dim or "?") for dim in self.shape)
        return f"{self.name}: {self.type}[{shape}]"

    def may_become(
        self, after: Port, *, static_dimensions: bool, other_shape: bool = False
    ) -> bool:
        """Return whether a pass may leave this port as ``after``.

        With ``static_dimensions`` it may also give a type to a port that had none; with ``other_shape`` it may
        find that the stated shape was wrong.
        """
        # Names and types may never change: callers feed and read by them.
        if self == after or (other_shape and (self.name, self.type) == (after.name, after.type)):
            return True
        if not static_dimensions or self.name != after.name or self.type not in ("", after.type):
            return False
        if self.shape is None:
            return True
        if after.shape is None:
            return False
        # A static dimension stays what it is; a dynamic one may become static, never the other way
        # round.
        return len(self.shape) == len(after.shape) and all(
            old == new or (not isinstance(old, int) and isinstance(new, int))
            for old, new in zip(self.shape, after.shape, strict=True)
        )


@dataclass(frozen=True)
class Interface:
    """Names, types and dimensions of a graph's inputs and outputs, in order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @classmethod
    def of(cls, model: ir.Model) -> Interface:
        """Read the interface of ``model``'s main graph."""
        return cls(_ports(model.graph.inputs), _ports(model.graph.outputs))

    def check(
        self,
        model: ir.Model,
        pass_name: str,
        *,
        static_inputs: bool,
        static_outputs: bool,
        adds_inputs: bool = False,
        corrects_outputs: bool = False,
    ) -> Interface:
        """Compare the interface after a pass with this one from before.

        Args:
            model: The model after the pass.
            pass_name: For the message.
            static_inputs: The pass may make dynamic dimensions of inputs static.
            static_outputs: The pass may make dynamic dimensions of outputs static.
            adds_inputs: The pass may add inputs behind those that there are.
            corrects_outputs: The pass may give outputs other shapes than were stated.

        Returns:
            The interface after the pass.

        Raises:
            InternalError: The pass changed the interface in any other way.
        """
        after = Interface.of(model)
        # Inputs that are added stand behind, so that callers by position are not disturbed.
        inputs = after.inputs[: len(self.inputs)] if adds_inputs else after.inputs
        _check_ports(self.inputs, inputs, "inputs", pass_name, static=static_inputs)
        _check_ports(
            self.outputs,
            after.outputs,
            "outputs",
            pass_name,
            static=static_outputs,
            corrected=corrects_outputs,
        )
        return after


def dimensions(shape: ir.Shape | None) -> tuple[Dimension, ...] | None:
    """Return a shape as integers, names and None."""
    if shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else dim.value for dim in shape)


def _ports(values: object) -> tuple[Port, ...]:
    return tuple(
        Port(value.name or "", type_text(value), dimensions(value.shape))
        for value in values  # type: ignore[attr-defined]
    )


def _check_ports(
    before: tuple[Port, ...],
    after: tuple[Port, ...],
    what: str,
    pass_name: str,
    *,
    static: bool,
    corrected: bool = False,
) -> None:
    if len(before) != len(after):
        raise InternalError(
            f"pass {pass_name} changed the number of {what} from {len(before)} to {len(after)}; "
            "please report this model"
        )
    for old, new in zip(before, after, strict=True):
        if not old.may_become(new, static_dimensions=static, other_shape=corrected):
            raise InternalError(
                f"pass {pass_name} changed the interface: {what} had {old}, now {new}; "
                "please report this model"
            )
