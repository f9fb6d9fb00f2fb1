"""torch's own operator database, run on SambaTensors and compared with plain torch, bit by bit."""

from __future__ import annotations

import collections
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from samba_onnx.tensor import SambaTensor

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
VARIANTS = ("function", "method", "operator", "in place", "operator in place")

UNINITIALISED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)
"""Their values are whatever was in memory."""

INEXACT = {"linalg.lstsq": 1e-5}
"""torch differs from itself when the inputs lie at other addresses: by 3.4e-6 in 30 runs."""


@dataclass
class Tally:
    """What was run and what came out."""

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    operators: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)


def run(shard: int, shards: int, samples: int | None) -> Tally:
    """Run every ``shards``-th operator.

    Args:
        shard: Which ones, from 0.
        shards: How many shards there are.
        samples: How many samples per operator and dtype; all when None.
    """
    tally = Tally()
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

        for operator in op_db[shard::shards]:
            tally.operators.add(operator.full_name)
            for dtype in DTYPES:
                if dtype in operator.dtypes:
                    _run_dtype(operator, dtype, samples, tally)
    return tally


def _run_dtype(operator: Any, dtype: torch.dtype, samples: int | None, tally: Tally) -> None:
    torch.manual_seed(0)
    differentiable = dtype.is_floating_point and operator.supports_autograd
    inputs = operator.sample_inputs("cpu", dtype, requires_grad=differentiable)
    for number, sample in enumerate(itertools.islice(inputs, samples)):
        arguments = ((sample.input, *sample.args), sample.kwargs)
        for variant, function in _variants(operator):
            if variant == "function" or isinstance(sample.input, torch.Tensor):
                where = f"{operator.full_name} {dtype} sample {number} {variant}"
                _compare(operator, variant, function, arguments, differentiable, where, tally)


def _variants(operator: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    functions = (
        operator.op,
        operator.method_variant,
        operator.operator_variant,
        operator.inplace_variant,
        operator.inplace_operator_variant,
    )
    for variant, function in zip(VARIANTS, functions, strict=True):
        if function is not None:
            yield variant, function


def _call(
    function: Callable[..., Any], arguments: Any, in_place: bool
) -> tuple[Any, Exception | None]:
    torch.manual_seed(0)
    args, keywords = arguments
    try:
        # In place on a leaf that requires gradients is refused: work on a copy of it.
        args = (args[0].clone(), *args[1:]) if in_place else args
        return function(*args, **keywords), None
    except Exception as error:
        return None, error


def _compare(
    operator: Any,
    variant: str,
    function: Callable[..., Any],
    arguments: Any,
    differentiable: bool,
    where: str,
    tally: Tally,
) -> None:
    plain = pytree.tree_map_only(torch.Tensor, _copy, arguments)
    ours = pytree.tree_map_only(torch.Tensor, lambda t: SambaTensor(_copy(t)), arguments)
    in_place = variant.endswith("in place")
    expected, refusal = _call(function, plain, in_place)
    got, error = _call(function, ours, in_place)
    if refusal is not None or error is not None:
        tally.counts[f"{variant}: refused by torch"] += refusal is not None
        if type(refusal) is not type(error):
            tally.failures.append(f"{where}: {error!r}, torch: {refusal!r}")
        return
    tally.counts[f"{variant}: values"] += 1
    rtol = INEXACT.get(operator.name, 0.0)
    try:
        _check_values(expected, got, rtol, _has_tensors(ours), operator.name in UNINITIALISED)
        if differentiable and _check_gradients(plain, ours, expected, got, rtol):
            tally.counts[f"{variant}: gradients"] += 1
    except Exception as problem:
        tally.failures.append(f"{where}: {str(problem) or repr(problem)}"[:300])


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _has_tensors(arguments: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(arguments))


def _check_values(expected: Any, got: Any, rtol: float, ours: bool, uninitialised: bool) -> None:
    wanted, found = pytree.tree_leaves(expected), pytree.tree_leaves(got)
    assert len(wanted) == len(found), f"{len(found)} results, torch has {len(wanted)}"
    for want, have in zip(wanted, found, strict=True):
        if not isinstance(want, torch.Tensor):
            assert want == have or (want != want and have != have), f"{have!r}, torch: {want!r}"
            continue
        assert isinstance(have, SambaTensor) == ours, type(have)
        plain = have.torch() if isinstance(have, SambaTensor) else have
        assert type(plain) is torch.Tensor
        if uninitialised:
            assert (plain.shape, plain.dtype) == (want.shape, want.dtype)
        else:
            torch.testing.assert_close(plain, want, rtol=rtol, atol=rtol, equal_nan=True)


def _differentiable(results: Any) -> list[torch.Tensor]:
    return [
        leaf
        for leaf in pytree.tree_leaves(results)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]


def _check_gradients(plain: Any, ours: Any, expected: Any, got: Any, rtol: float) -> bool:
    """Whether there are gradients; they are equal."""
    wanted = _differentiable(expected)
    if not wanted:
        return False
    try:
        torch.autograd.backward(wanted, [torch.ones_like(result) for result in wanted])
    except RuntimeError:
        return False
    found = _differentiable(got)
    torch.autograd.backward(found, [torch.ones_like(result) for result in found])
    for want, have in zip(_differentiable(plain), _differentiable(ours), strict=True):
        assert isinstance(have, SambaTensor)
        if want.grad is None:
            assert have.grad is None
        else:
            assert type(have.grad) is torch.Tensor
            assert have.torch().grad is not None
            torch.testing.assert_close(have.grad, want.grad, rtol=rtol, atol=rtol, equal_nan=True)
    return True
