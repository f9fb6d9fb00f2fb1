"""torch's own operator database, differentiated: gradients in ONNX against torch's autograd."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from samba_onnx.errors import ModelError
from samba_onnx.export.programs.training import export_training
from tests.export.operator_database import EXCLUDED, MODES, Case, Verdict, reason, verdict
from tests.export.training_runs import Machine

SAMPLES = 8
"""Of each operator so many are run."""

NO_GRADIENT = "torch has no gradient of it"
REFUSED = "torch refuses it here"
COMPLEX = "complex numbers"
NO_FORWARD = "its forward is not written in ONNX"

LEFT_OUT = MappingProxyType(
    {**EXCLUDED, "nn.functional.multi_head_attention_forward": EXCLUDED["nn.functional.dropout"]}
)
"""Operators without a result that is the same twice."""

UNIT = 1e-6
"""A few dozen roundings of float32 (6e-8) of the largest number of a gradient: sums in another order."""
MOST = 1e-2
"""No error beyond this part of the largest number passes, however far torch itself is off."""
CANCELLED = 1.0
"""A smaller gradient is what is left over of a sum of numbers around one, which are rounded."""


Expected: TypeAlias = "Callable[[Sample, torch.dtype], list[Tensor | None]]"


@dataclass(frozen=True)
class Sample:
    """One sample of one operator, and by which of its tensors it is differentiated."""

    case: Case
    leaves: tuple[int, ...]
    """Positions among the tensors, without those that are the same one again."""


class Weighted(nn.Module):
    """The sum of an operator's results, each of their numbers with a weight of its own.

    What is differentiated by is a parameter; the other tensors are inputs of ``forward``.
    """

    def __init__(self, sample: Sample, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.call = sample.case.call
        flat, self.spec = pytree.tree_flatten(sample.case.arguments)
        self.leaves, tensors = _without_tensors(flat)
        self.places = sample.leaves
        self.rest = [i for i in range(len(tensors)) if i not in sample.leaves]
        chosen = [tensors[index] for index in sample.leaves]
        self.learned = nn.ParameterList(nn.Parameter(_copy(t, dtype)) for t in chosen)
        self.inputs = tuple(_copy(tensors[index], dtype) for index in self.rest)
        with torch.no_grad():
            results = self._results([_copy(tensors[index], dtype) for index in self.rest])
        for number, result in enumerate(results):
            generator = torch.Generator().manual_seed(number)
            numbers = torch.randn(result.shape, generator=generator)
            self.register_buffer(f"weights_{number}", numbers.to(result.dtype))

    def forward(self, *given: Tensor) -> Tensor:
        results = self._results(given)
        weights = [self.get_buffer(f"weights_{number}") for number in range(len(results))]
        sums = [(r * w).sum() for r, w in zip(results, weights, strict=True)]
        return functools.reduce(torch.add, sums)

    def _results(self, given: Sequence[Tensor]) -> list[Tensor]:
        tensors = dict(zip(self.rest, given, strict=True))
        tensors |= dict(zip(self.places, self.learned, strict=True))
        leaves = [tensors[x.index] if isinstance(x, _Place) else x for x in self.leaves]
        args, keywords = pytree.tree_unflatten(leaves, self.spec)
        results = pytree.tree_leaves(self.call(*args, **keywords))
        real = [r for r in results if isinstance(r, Tensor) and r.is_floating_point()]
        if not real:
            raise NoGradientError(NO_GRADIENT)
        return real


class NoGradientError(Exception):
    """An operator returns nothing that has a gradient."""


@dataclass(frozen=True)
class _Place:
    """Stands for a tensor among arguments."""

    index: int


def _without_tensors(flat: list[Any]) -> tuple[list[Any], list[Tensor]]:
    """Return arguments with their different tensors taken out, and those."""
    tensors: list[Tensor] = []
    places: dict[int, _Place] = {}
    for leaf in flat:
        if isinstance(leaf, Tensor) and id(leaf) not in places:
            places[id(leaf)] = _Place(len(tensors))
            tensors.append(leaf)
    return [places.get(id(leaf), leaf) for leaf in flat], tensors


def _copy(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    plain = tensor.detach().clone()
    return plain.to(dtype) if plain.is_floating_point() else plain


def samples(operator: Any, limit: int = SAMPLES) -> Iterator[Sample]:
    """Return samples of an operator that have something to differentiate by.

    Args:
        operator: Of the database.
        limit: How many at most, the first and others evenly spread.
    """
    if not operator.supports_autograd or torch.float32 not in operator.dtypes:
        return
    torch.manual_seed(0)
    inputs = operator.sample_inputs("cpu", torch.float32, requires_grad=True)
    found = _differentiable(operator, inputs)
    if limit == 1:
        yield from itertools.islice(found, 1)
        return
    every = list(found)
    if len(every) > limit:
        every = [every[number * (len(every) - 1) // (limit - 1)] for number in range(limit)]
    yield from every


def _differentiable(operator: Any, found: Any) -> Iterator[Sample]:
    for number, one in enumerate(found):
        arguments = ((one.input, *one.args), one.kwargs)
        _, tensors = _without_tensors(pytree.tree_leaves(arguments))
        leaves = tuple(
            i for i, t in enumerate(tensors) if t.requires_grad and t.is_floating_point()
        )
        if leaves and not one.kwargs.get("dropout_p"):
            call = _processed(operator.op, one.output_process_fn_grad)
            yield Sample(Case(operator.full_name, torch.float32, number, call, arguments), leaves)


def _processed(call: Callable[..., Any], after: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator followed by what makes its result differentiable, and real."""

    def processed(*args: Any, **keywords: Any) -> Any:
        return pytree.tree_map_only(Tensor, _as_real, after(call(*args, **keywords)))

    return processed


def _as_real(result: Tensor) -> Tensor:
    return torch.view_as_real(result.resolve_conj()) if result.is_complex() else result


def truth(sample: Sample, dtype: torch.dtype) -> list[Tensor | None]:
    """Return the gradients that torch computes."""
    module = Weighted(sample, dtype)
    loss = module(*module.inputs)
    if not loss.requires_grad:
        raise NoGradientError(NO_GRADIENT)
    return list(torch.autograd.grad(loss, list(module.learned), allow_unused=True))


def exported(sample: Sample) -> list[Tensor | None]:
    """Return the gradients that the exported forward and backward compute."""
    module = Weighted(sample)
    program = export_training(module, module.inputs, loss_indices=[0])
    machine = Machine(program)
    machine.load(module)
    machine.give(module.inputs)
    machine.run()
    names = {path: f"{name}__grad" for name, path in program.members.items()}
    wanted = [names.get(f"learned.{index}") for index in range(len(sample.leaves))]
    return [machine[n] if n in machine.program.residents else None for n in wanted]


def gradient_verdict(sample: Sample, expected: Expected = truth) -> Verdict:
    """Export, run and compare one sample.

    Args:
        sample: What to differentiate.
        expected: Computes in a type what is right.
    """
    try:
        exact = expected(sample, torch.float64)
        own = expected(sample, torch.float32)
    except NoGradientError:
        return Verdict(False, NO_GRADIENT)
    except Exception as error:
        return Verdict(False, f"{REFUSED}: {_first_line(error)}")
    if any(g is not None and g.is_complex() for g in own):
        return Verdict(False, COMPLEX)
    try:
        ours = exported(sample)
    except Exception as error:
        return Verdict(False, _why(sample, error))
    try:
        compare(ours, own, exact)
    except AssertionError as difference:
        return Verdict(False, f"wrong: {_first_line(difference)}")
    return Verdict(True)


def is_counted(found: Verdict) -> bool:
    """Return whether a sample has a gradient and a forward that is exported."""
    apart = (NO_GRADIENT, REFUSED, COMPLEX, NO_FORWARD)
    return found.passed or not found.reason.startswith(apart)


def _why(sample: Sample, error: Exception) -> str:
    """Say why a gradient is not there: whether the operator itself is."""
    with torch.no_grad():
        forward = verdict(sample.case, MODES["value"])
    if not forward.passed:
        return f"{NO_FORWARD}: {forward.reason}"
    text = reason(error)
    if isinstance(error, ModelError) and text.startswith(type(error).__name__):
        return text.partition(": ")[2]
    return text


def compare(
    ours: list[Tensor | None], own: list[Tensor | None], exact: list[Tensor | None]
) -> None:
    """Assert that gradients are torch's: by float64, with ten times torch's error in float32.

    A gradient that torch leaves out may be left out or zero.
    """
    assert len(ours) == len(exact), f"{len(ours)} gradients, torch has {len(exact)}"
    for index, (got, near, want) in enumerate(zip(ours, own, exact, strict=True)):
        if near is None or want is None:
            assert got is None or not got.any(), f"gradient {index} is not zero"
            continue
        if got is None:
            assert not want.any(), f"gradient {index} is missing"
            continue
        assert got.shape == want.shape, f"gradient {index} is {list(got.shape)}"
        assert got.dtype == near.dtype, f"gradient {index} is {got.dtype}"
        _compare_numbers(index, got.double(), near.double(), want)


def _compare_numbers(index: int, got: Tensor, near: Tensor, want: Tensor) -> None:
    finite = want.isfinite() & near.isfinite()
    met = _same(got, want) | _same(got, near)
    assert (met | finite).all(), f"gradient {index} differs where torch's is not finite"
    if not finite.any():
        return
    scale = float(want[finite].abs().max())
    rounding = float((near - want)[finite].abs().max())
    size = max(scale, CANCELLED)
    allowed = min(10 * rounding, MOST * size) + UNIT * size
    # Where a function has a kink or a step, rounding decides on which side torch itself is.
    errors = torch.minimum((got - want).abs(), (got - near).abs())
    error = float(errors[finite].max())
    assert error <= allowed, (
        f"gradient {index} is off by {error:.1e} of {scale:.1e}, torch itself by {rounding:.1e}"
    )


def _same(one: Tensor, other: Tensor) -> Tensor:
    return (one == other) | (one.isnan() & other.isnan())


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:120]


def spoiled(sample: Sample) -> Sample:
    """Return a sample whose operator computes something slightly different."""

    def call(*args: Any, **keywords: Any) -> Any:
        results = sample.case.call(*args, **keywords)
        return pytree.tree_map_only(Tensor, lambda t: t * (1 + 1e-4), results)

    return replace(sample, case=replace(sample.case, call=call))
