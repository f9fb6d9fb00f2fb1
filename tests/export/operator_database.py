"""torch's own operator database: every sample captured, translated, run and compared with torch."""

from __future__ import annotations

import contextlib
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.captured_modules import PlaceholderKind, capture
from samba_onnx.export.translation import graphs as translation
from samba_onnx.export.translation.builder import GraphBuilder
from samba_onnx.export.translation.element_types import onnx_type
from samba_onnx.export.translation.graphs import constant, translate
from tests.export.operators.harness import run_model

DTYPES = (torch.float32, torch.int64, torch.bool)

_RANDOM = "its results are random"
_UNINITIALISED = "its values are whatever was in memory"

EXCLUDED = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "bernoulli",
                "cauchy",
                "exponential",
                "geometric",
                "log_normal",
                "multinomial",
                "nn.functional.alpha_dropout",
                "nn.functional.dropout",
                "nn.functional.dropout2d",
                "nn.functional.dropout3d",
                "nn.functional.feature_alpha_dropout.with_train",
                "nn.functional.fractional_max_pool2d",
                "nn.functional.fractional_max_pool3d",
                "nn.functional.rrelu",
                "normal",
                "normal.in_place",
                "normal.number_mean",
                "pca_lowrank",
                "rand_like",
                "randint",
                "randint_like",
                "randn",
                "randn_like",
                "svd_lowrank",
                "uniform",
            ),
            _RANDOM,
        ),
        **dict.fromkeys(
            (
                "empty",
                "empty_like",
                "empty_permuted",
                "empty_strided",
                "new_empty",
                "new_empty_strided",
            ),
            _UNINITIALISED,
        ),
    }
)
"""Operators that have no result to compare with, and why."""


LOOSE = MappingProxyType({"matrix_exp": 1e-2, "nn.functional.multi_head_attention_forward": 1e-4})
"""Where torch's own float32 is that far from float64: exponentials of numbers of 20, and of scores of
some hundreds, whose roundings grow with them."""

TIED = MappingProxyType({"argsort": 1, "kthvalue": 2, "mode": 1, "sort": 1, "topk": 2})
"""Operators that say where an element was, and do not say which of several equal ones they mean; with
the position of their argument ``dim``. What lies there is compared, not the place."""


@dataclass(frozen=True)
class Case:
    """One sample of one operator."""

    operator: str
    """Full name in the database."""
    dtype: torch.dtype
    number: int
    call: Callable[..., Any]
    arguments: Any
    """(args, kwargs)."""

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments, in order."""
        return [x for x in pytree.tree_leaves(self.arguments) if isinstance(x, Tensor)]


@dataclass(frozen=True)
class Verdict:
    """What came out of one sample."""

    passed: bool
    reason: str = ""


@dataclass(frozen=True)
class Mode:
    """What of an operator is compared."""

    expected: Callable[[Case], list[Tensor]]
    """torch's own results."""
    model: Callable[[Case], tuple[ir.Model, dict[str, Tensor]]]
    """A graph with these results, and what to feed it with."""


class _Module(nn.Module):
    """Calls an operator on tensors; all its other arguments are fixed."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.call = case.call
        self.leaves, self.spec = pytree.tree_flatten(case.arguments)

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        given = iter(tensors)
        leaves = [next(given) if isinstance(x, Tensor) else x for x in self.leaves]
        args, keywords = pytree.tree_unflatten(leaves, self.spec)
        results = pytree.tree_leaves(self.call(*args, **keywords))
        return [result for result in results if isinstance(result, Tensor)]


def _settled(call: Callable[..., Any], position: int) -> Callable[..., Any]:
    """Return an operator whose places are replaced by what lies there."""

    def settled(value: Tensor, *args: Any, **keywords: Any) -> Any:
        results = call(value, *args, **keywords)
        values, places = (results, results) if isinstance(results, Tensor) else results
        dim = args[position - 1] if len(args) >= position else keywords.get("dim", -1)
        if places.dim() < value.dim():
            places = places.unsqueeze(dim)
        found = torch.gather(value, dim, places)
        return found if values is places else (values, found)

    return settled


MOST = 100
"""Samples of an operator and a data type that are run at most: of more, as many, evenly spread."""


def cases(operator: Any, dtype: torch.dtype, samples: int | None = None) -> Iterator[Case]:
    """Return samples of an operator of the database.

    Args:
        operator: Of the database.
        dtype: Of its tensors.
        samples: How many of the first ones; when None, all up to ``MOST``.
    """
    if dtype not in operator.dtypes:
        return
    torch.manual_seed(0)
    call = operator.op
    if operator.full_name in TIED:
        call = _settled(call, TIED[operator.full_name])
    inputs = operator.sample_inputs("cpu", dtype, requires_grad=False)
    chosen = list(enumerate(itertools.islice(inputs, samples)))
    if hasattr(inputs, "close"):
        inputs.close()  # here, and not while something is traced
    step = 1 if samples else -(-len(chosen) // MOST)
    for number, sample in chosen[:: max(step, 1)]:
        arguments = ((sample.input, *sample.args), sample.kwargs)
        if not sample.kwargs.get("dropout_p") or sample.kwargs.get("training") is False:
            yield Case(operator.full_name, dtype, number, call, arguments)


def expected_values(case: Case) -> list[Tensor]:
    """Return what torch computes."""
    tensors = [tensor.detach().clone() for tensor in case.tensors]
    with torch.no_grad():
        return [result.resolve_conj() for result in _Module(case)(*tensors)]


def value_model(case: Case) -> tuple[ir.Model, dict[str, Tensor]]:
    """Return an operator as a graph of its own."""
    tensors = case.tensors
    with torch.no_grad():
        captured = capture(_Module(case), tuple(tensors))
    build = GraphBuilder("graph")
    feed = {f"input_{i}": tensor for i, tensor in enumerate(tensors)}
    waiting = iter(feed.items())
    inputs = {}
    for placeholder in captured.placeholders:
        if placeholder.kind == PlaceholderKind.CONSTANT:
            content = captured.constants[placeholder.name]
            inputs[placeholder.name] = constant(build, content)
        else:
            name, tensor = next(waiting)
            inputs[placeholder.name] = build.input(name, onnx_type(tensor.dtype), tensor.shape)
    results = translate(captured.graph_module, build, inputs)
    for i, result in enumerate(results):
        assert result is not None
        build.output(result, f"output_{i}")
    return build.model(), feed


MODES = MappingProxyType({"value": Mode(expected_values, value_model)})
"""By name."""


def verdict(case: Case, mode: Mode) -> Verdict:
    """Run one sample."""
    try:
        expected = mode.expected(case)
    except Exception as error:
        return Verdict(False, f"torch refuses it here: {_first_line(error)}")
    if not expected:
        return Verdict(False, "it returns no tensor")
    if any(tensor.is_complex() for tensor in (*expected, *case.tensors)):
        return Verdict(False, "complex numbers")
    try:
        model, feed = mode.model(case)
        actual = run_model(model, feed)
    except Exception as error:
        return Verdict(False, reason(error))
    tolerance = LOOSE.get(case.operator, 1e-5)
    try:
        compare(actual, expected, tolerance)
    except AssertionError as difference:
        if case.dtype == torch.float32 and _is_nearer(case, mode, actual):
            return Verdict(True)
        return Verdict(False, f"wrong: {_first_line(difference)}")
    return Verdict(True)


def compare(actual: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = 1e-5) -> None:
    """Assert that results are torch's.

    Both sides round in their own order, so that some roundings (6e-8 each) are left over of the
    numbers in a sum: those around one, and those as large as the largest result.
    """
    assert len(actual) == len(expected), f"{len(actual)} results, torch has {len(expected)}"
    for got, want in zip(actual, expected, strict=True):
        largest = _largest(want)
        slack = tolerance * max(1.0, largest / 10)
        torch.testing.assert_close(got, want, rtol=tolerance, atol=slack, equal_nan=True)


def _largest(tensor: Tensor) -> float:
    """Return the size of the largest finite number."""
    if not tensor.is_floating_point():
        return 0.0
    finite = tensor[tensor.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _is_nearer(case: Case, mode: Mode, actual: Sequence[Tensor]) -> bool:
    """Whether results are right by float64, which torch's own in float32 are not always."""

    def widened(leaf: Any) -> Any:
        return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    wide = replace(case, arguments=pytree.tree_map(widened, case.arguments))
    try:
        precise = mode.expected(wide)
        exact = [want.to(got.dtype) for got, want in zip(actual, precise, strict=True)]
        compare(actual, exact, LOOSE.get(case.operator, 1e-5))
    except Exception:
        return False
    return True


_DEPENDENT = (
    "DynamicOutputShape",
    "DataDependent",
    "data-dependent",
    "depends on the data",
    "depend on values",
    "SymInt",
    "SymBool",
    "SymFloat",
)


def reason(error: Exception) -> str:
    """Return in a few words why something cannot be written in ONNX or run."""
    text = str(error)
    unknown = re.search(r"(\w+) typestr: T, has unsupported type: tensor\((\w+)\)", text)
    if unknown:
        operator = re.search(r"op_type:(\w+)", text)
        return f"ONNX has no {operator[1] if operator else 'node'} of {unknown[2]}"
    if any(word in text or word in type(error).__name__ for word in _DEPENDENT):
        return "its shapes or branches depend on the data"
    if "COMPLEX" in text.upper():
        return "complex numbers"
    refused = re.match(r"(\S+) at .* cannot be written in ONNX", text)
    if refused:
        return f"no translation of {refused[1]}"
    if "ONNXRuntimeError" in text and "NOT_IMPLEMENTED" in text:
        kernel = re.search(r"implementation for (\w+)", text)
        return f"onnxruntime has no kernel of {kernel[1] if kernel else 'a node'} for the type"
    if isinstance(error, ModelError) and "cannot be captured" in text:
        return f"torch cannot capture it: {_first_line(error).partition('; at ')[2].partition(': ')[2]}"
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    line = " ".join(part.strip() for part in str(error).strip().splitlines()[:2])
    return re.sub(r"0x[0-9a-f]+", "0x...", line)[:120]


class Exporter:
    """torch's own exporter, for single operators; where it failed once it is not asked again."""

    def __init__(self) -> None:
        self.failed: set[object] = set()
        self.write = translation.borrowed

    def __call__(self, node: fx.Node, *arguments: Any) -> Any:
        answer = None if node.target in self.failed else self.write(node, *arguments)
        if answer is None:
            self.failed.add(node.target)
        return answer


@contextlib.contextmanager
def borrowing(exporter: Exporter | None) -> Iterator[None]:
    """Let an exporter write what the table of translations lacks, or nobody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation, "borrowed", exporter or (lambda *_: None))
        yield


def operators() -> list[Any]:
    """Return torch's database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)
