"""Optimizer steps as parts of a program: GRADNORM and OPT.

A state or weight is read by elementwise nodes only, and each of them comes before the node that
makes its new value: the device may write the new value over the old one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import onnx_ir as ir

from samba_onnx.errors import UsageError
from samba_onnx.export.naming import SymbolClaims
from samba_onnx.export.programs.update_rules import (
    LOW_PRECISION,
    Update,
    adam_update,
    sgd_scalars,
    sgd_update,
)
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes
from samba_onnx.facts.names import SEPARATOR, gradient_name, joined, updated_name
from samba_onnx.optim.argins import MAX_GRAD_NORM, argin_name, derive
from samba_onnx.optim.records import (
    MASTER,
    GroupRecord,
    OptimizerKind,
    OptimizerRecord,
    state_keys,
    state_name,
)
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import ArginSpec, Part

TensorSpec: TypeAlias = tuple[ir.DataType, Sequence[int]]
"""Type and sizes of a parameter."""

_TORCH_NORM_EPSILON: Final = 1e-6
"""``torch.nn.utils.clip_grad_norm_`` adds this to the norm."""
_TYPES: Final = MappingProxyType(
    {ir.DataType.FLOAT: "tensor(float)", ir.DataType.DOUBLE: "tensor(double)"}
)


@dataclass(frozen=True)
class OptimizerParts:
    """What optimizers add to a program."""

    update: tuple[Part, ...]
    """The parts to run after the backward: GRADNORM of those optimizers that clip, then OPT of
    each."""
    residents: Mapping[str, SymbolKind]
    """Kinds of weights, gradients, states and of the updates of these, by symbol."""
    regions: Mapping[str, str]
    """Regions by symbol: an update lies where the value lies that it updates."""
    argins: tuple[ArginSpec, ...]
    """The scalars that the parts read: hyperparameters of each step."""


def clip_coefficient_name(record: OptimizerRecord) -> str:
    """Return the name of the number that GRADNORM computes: what gradients are multiplied by.

    Args:
        record: The optimizer.
    """
    return joined(record.name, "clip_coefficient")


def optimizer_parts(
    records: Sequence[OptimizerRecord], parameters: Mapping[str, TensorSpec]
) -> OptimizerParts:
    """Write the steps of optimizers in ONNX.

    Args:
        records: The optimizers.
        parameters: Type and sizes of the parameters that have gradients, by name. Others stay as
            they are, and so do those without elements.

    Returns:
        Parts, and what their inputs and outputs are to the device.

    Raises:
        UsageError: Two optimizers have the same parameter, or an optimizer has none of
            ``parameters``, or one that is not floating point; or a state would have the name of
            a parameter.
    """
    _check_disjoint(records)
    _refuse_clashes(records)
    # An empty parameter has nothing to update.
    trained = {name: spec for name, spec in parameters.items() if math.prod(spec[1])}
    steps = [_OptimizerStep(record, trained, parameters) for record in records]
    regions = {updated_name(name): name for step in steps for name in step.updated}
    residents = {
        value: kind
        for step in steps
        for name, kind in step.kinds.items()
        for value in ((name, updated_name(name)) if name in step.updated else (name,))
    }
    return OptimizerParts(
        update=tuple(
            part
            for parts in ([step.norm for step in steps], [step.update for step in steps])
            for part in itertools.chain.from_iterable(parts)
        ),
        residents=MappingProxyType(residents),
        regions=MappingProxyType(regions),
        argins=tuple(argin for step in steps for argin in step.argins()),
    )


class _OptimizerStep:
    """The writing of one optimizer's step."""

    def __init__(
        self,
        record: OptimizerRecord,
        trained: Mapping[str, TensorSpec],
        parameters: Mapping[str, TensorSpec],
    ) -> None:
        self._record = record
        self._specs = {name: trained[name] for name in record.parameters if name in trained}
        self._check(parameters)
        self._clips = record.max_grad_norm is not None and bool(self._specs)
        self._argin_types: dict[str, ir.DataType] = {}
        self._builder = GraphBuilder(joined(record.name, "opt"))
        self.kinds: dict[str, SymbolKind] = {}
        """Kinds of the weights, gradients and states that the step reads or writes, by name."""
        self.updated: list[str] = []
        """Names of the weights and states that the step writes, in the order of writing."""
        self._coefficient: ir.Value | None = None
        if self._clips:
            # In float64 if any parameter is: the coefficient must not round its gradients.
            precision = self._precision(self._specs)
            self._coefficient = self._builder.input(clip_coefficient_name(record), precision, ())
        for group in record.groups:
            self._write_group(group)
        self.norm = (self._gradient_norm(),) if self._clips else ()
        """The GRADNORM part, if the optimizer clips."""
        self.update = (Part(SectionType.OPT, self._builder.model()),) if self.updated else ()
        """The OPT part, unless there is nothing to update."""

    def argins(self) -> list[ArginSpec]:
        """Return the argins that the parts read."""
        # Of the first step: every run gives those of its own.
        defaults = derive(self._record, {}, 1)
        return [
            ArginSpec(name, _TYPES[dtype], defaults[name])
            for name, dtype in self._argin_types.items()
        ]

    def _check(self, parameters: Mapping[str, TensorSpec]) -> None:
        record = self._record
        # An optimizer without any parameters is one of several that a program makes.
        if record.parameters and not any(name in parameters for name in record.parameters):
            raise UsageError(
                f"{record.kind} has none of the parameters that the loss reaches: make the "
                "optimizer over the parameters of the model that is compiled"
            )
        for name, (dtype, _) in self._specs.items():
            if dtype not in (*LOW_PRECISION, *_TYPES):
                raise UsageError(
                    f"{record.kind} has parameter {name!r} of {dtype.name}: only floating-point "
                    "parameters can be updated"
                )

    def _precision(self, names: Iterable[str]) -> ir.DataType:
        double = any(self._specs[name][0] == ir.DataType.DOUBLE for name in names)
        return ir.DataType.DOUBLE if double else ir.DataType.FLOAT

    def _write_group(self, group: GroupRecord) -> None:
        names = [name for name in group.parameters if name in self._specs]
        if not names:
            return
        precision = self._precision(names)
        scalars = {}
        for argin in derive(self._record, {}, 1):
            prefix = f"{group.name}{SEPARATOR}"
            if argin.startswith(prefix):
                self._argin_types[argin] = precision
                key = argin.removeprefix(prefix)
                scalars[key] = self._builder.input(argin, precision, ())
        self._builder.scope = group.name
        # Once per type, not per parameter: passes would have to merge hundreds of equal nodes.
        types = dict.fromkeys(_precise(self._specs[name][0]) for name in names)
        operands = {precise: self._operands(scalars, precise) for precise in types}
        for name in names:
            self._builder.scope = name
            self._write_parameter(group, name, operands[_precise(self._specs[name][0])])

    def _operands(
        self, scalars: Mapping[str, ir.Value], precise: ir.DataType
    ) -> dict[str, ir.Value]:
        """Return the scalars of a group in the type in which parameters are updated."""
        operands = {key: self._builder.cast(scalar, precise) for key, scalar in scalars.items()}
        if self._record.kind is OptimizerKind.SGD:
            operands |= sgd_scalars(self._builder, operands)
        return operands

    def _write_parameter(
        self, group: GroupRecord, name: str, scalars: Mapping[str, ir.Value]
    ) -> None:
        build, record = self._builder, self._record
        dtype, shape = self._specs[name]
        precise = _precise(dtype)
        # A float32 copy is kept where the parameter is rounded: small steps would be lost
        # otherwise.
        master = record.fp32_params and dtype in LOW_PRECISION
        stored = precise if master else dtype
        keys = state_keys(record.kind, group.flags)
        gradient = self._read(gradient_name(name), SymbolKind.GRADIENT, dtype, shape)
        # With a master copy, the update reads and writes that, and the weight is only its rounded
        # copy.
        kind = SymbolKind.OPTIMIZER_STATE if master else SymbolKind.WEIGHT
        place = state_name(name, MASTER) if master else name
        update = Update(
            build,
            group.flags,
            scalars,
            # Computed in float32 at least, whatever is stored.
            build.cast(self._read(place, kind, stored, shape), precise),
            self._clipped(build.cast(gradient, precise)),
            {
                key: build.cast(self._read(state_name(name, key), kind_, stored, shape), precise)
                for key, kind_ in dict.fromkeys(keys, SymbolKind.OPTIMIZER_STATE).items()
            },
        )
        rule = sgd_update if record.kind is OptimizerKind.SGD else adam_update
        weight, state = rule(update)
        for key in keys:
            self._write(state_name(name, key), build.cast(state[key], stored))
        self._write(place, build.cast(weight, stored))
        if master:
            self.kinds[name] = SymbolKind.WEIGHT
            # From the precise value, so that it is rounded once.
            self._write(name, build.cast(weight, dtype))

    def _clipped(self, gradient: ir.Value) -> ir.Value:
        if self._coefficient is None:
            return gradient
        coefficient = self._builder.cast(self._coefficient, element(gradient))
        return self._builder.multiply(gradient, coefficient)

    def _read(
        self, name: str, kind: SymbolKind, dtype: ir.DataType, shape: Sequence[int]
    ) -> ir.Value:
        self.kinds[name] = kind
        return self._builder.input(name, dtype, shape)

    def _write(self, name: str, value: ir.Value) -> None:
        self.updated.append(name)
        self._builder.output(value, updated_name(name))

    def _gradient_norm(self) -> Part:
        """Return the part that compares the norm of all gradients with its limit."""
        record = self._record
        build = GraphBuilder(joined(record.name, "gradnorm"))
        precision = self._precision(self._specs)
        limit = argin_name(record.name, MAX_GRAD_NORM)
        self._argin_types[limit] = precision
        largest = build.input(limit, precision, ())
        squares = []
        for name, (dtype, shape) in self._specs.items():
            build.scope = name
            gradient = build.input(gradient_name(name), dtype, shape)
            squares.append(_sum_of_squares(build, build.cast(gradient, precision)))
        build.scope = record.name
        total = build.emit("Sum", squares, precision, ())
        norm = build.add(build.unary("Sqrt", total), _TORCH_NORM_EPSILON)
        coefficient = build.binary("Min", build.divide(largest, norm), 1.0)
        build.output(coefficient, clip_coefficient_name(record))
        return Part(SectionType.GRADNORM, build.model())


def _precise(dtype: ir.DataType) -> ir.DataType:
    """Return the type in which a parameter of a type is updated."""
    return ir.DataType.DOUBLE if dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT


def _sum_of_squares(build: GraphBuilder, value: ir.Value) -> ir.Value:
    # A reduction needs an axis, which a scalar has not.
    if not sizes(value):
        return build.multiply(value, value)
    return build.reduce("ReduceSumSquare", value)


def _check_disjoint(records: Sequence[OptimizerRecord]) -> None:
    seen: set[str] = set()
    for record in records:
        for name in record.parameters:
            if name in seen:
                raise UsageError(
                    f"parameter {name!r} is given to the optimizers more than once: every "
                    "parameter can have one optimizer"
                )
            seen.add(name)


def _refuse_clashes(records: Sequence[OptimizerRecord]) -> None:
    claims = SymbolClaims()
    for record in records:
        # All parameters first: a state of one optimizer may be called as a parameter of another.
        for name in record.parameters:
            claims.claim(name, f"parameter {name!r}")
    for record in records:
        for group in record.groups:
            for name, key in itertools.product(
                group.parameters, (*state_keys(record.kind, group.flags), MASTER)
            ):
                claims.claim(state_name(name, key), f"state {key!r} of parameter {name!r}")
