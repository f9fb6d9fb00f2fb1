"""Checks the translation of one ATen operator against torch's own result of that operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import torch
from torch.utils import _pytree as pytree

import samba_onnx.export.operators  # noqa: F401  (fills the table)
from samba_onnx.export.operators.registry import Context, ResultSpec, find
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes
from samba_onnx.export.translation.element_types import onnx_type
from samba_onnx.runtime.engine.lowerings.bfloat16 import uses_bfloat16
from samba_onnx.runtime.engine.lowerings.pipeline import lower
from samba_onnx.runtime.engine.lowerings.stage_model import StageModel
from samba_onnx.runtime.engine.onnxruntime.values import HostSession

# Both sides sum the same numbers in different orders, so that errors are some roundings of the
# largest number that takes part, not of each element: a few hundred of float32's 6e-8 cover sums
# of thousands of terms, and a wrong formula is off by far more.
TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
"""Largest absolute error allowed, relative to the largest magnitude that is expected."""


def check_operator(
    overload: torch._ops.OpOverload,
    *args: Any,
    tolerance: float | None = None,
    ignore: Sequence[int] = (),
    expected: Sequence[torch.Tensor | None] | None = None,
    **kwargs: Any,
) -> ir.Model:
    """Translate one operator, run it on onnxruntime and compare every result with torch's.

    Args:
        overload: As ``torch.ops.aten.add.Tensor``.
        *args: Its arguments; tensors become graph inputs.
        tolerance: Largest error relative to the largest expected magnitude; by type when None.
        ignore: Results that are not compared: torch leaves them unspecified.
        expected: The results, where torch has no kernel of the operator itself.
        **kwargs: More arguments.

    Returns:
        The model that was run.
    """
    if expected is None:
        expected = reference(overload, args, kwargs)
    model, feed = translate_operator(overload, args, kwargs, expected)
    actual = iter(run_model(model, feed))
    for index, want in enumerate(expected):
        if want is None:
            continue
        got = next(actual)
        assert got.shape == want.shape, f"result {index}: {got.shape} instead of {want.shape}"
        assert got.dtype == want.dtype, f"result {index}: {got.dtype} instead of {want.dtype}"
        if index not in ignore:
            assert_near(got, want, tolerance, f"{overload}, result {index}")
    return model


def reference(
    overload: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[torch.Tensor | None]:
    """Return torch's results, as a flat list; None for those that are undefined or masked out."""
    copied = pytree.tree_map_only(torch.Tensor, torch.clone, (tuple(args), kwargs))
    with torch.no_grad():
        result = overload(*copied[0], **copied[1])
    if isinstance(result, torch.Tensor):
        return [result]
    flat = [item for one in result for item in (one if isinstance(one, list) else [one])]
    names = [argument.name for argument in overload._schema.arguments]
    if "output_mask" in names:
        wanted = every_argument(overload, args, kwargs)[names.index("output_mask")]
        return [item if flag else None for item, flag in zip(flat, wanted, strict=True)]
    return flat


def translate_operator(
    overload: torch._ops.OpOverload,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    expected: Sequence[torch.Tensor | None],
) -> tuple[ir.Model, dict[str, torch.Tensor]]:
    """Return a model of one operator, and what to feed it with."""
    build = GraphBuilder("graph")
    feed: dict[str, torch.Tensor] = {}

    def enter(tensor: torch.Tensor) -> ir.Value:
        name = f"input_{len(feed)}"
        feed[name] = tensor
        return build.input(name, onnx_type(tensor.dtype), tensor.shape)

    namespace, name = overload._schema.name.split("::")
    function: Callable[..., Any] | None = find(namespace, name, overload._overloadname)
    assert function is not None, f"{overload} has no translation"
    arguments = [
        pytree.tree_map_only(torch.Tensor, enter, item)
        for item in every_argument(overload, args, kwargs)
    ]
    outcomes = tuple(
        None if want is None else ResultSpec(onnx_type(want.dtype), tuple(want.shape))
        for want in expected
    )
    result = function(Context(build, outcomes, str(overload)), *arguments)
    values = result if isinstance(result, list) else [result]
    assert len(values) == len(outcomes)
    for index, (value, outcome) in enumerate(zip(values, outcomes, strict=True)):
        if outcome is not None:
            assert value is not None, f"result {index} is missing"
            assert sizes(value) == outcome.shape
            assert element(value) == outcome.dtype
            build.output(value, f"output_{index}")
    return build.model(), feed


def every_argument(
    overload: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[Any]:
    """Return the arguments in the order of the schema, with defaults filled in."""
    left = overload._schema.arguments[len(args) :]
    return [*args, *(kwargs.get(item.name, item.default_value) for item in left)]


def run_model(model: ir.Model, feed: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Check a model by ONNX's rules, run it and return its outputs."""
    proto = ir.to_proto(model)
    if uses_bfloat16(proto):
        # Convolutions, poolings and a few more have bfloat16 among their types from opset 22 on.
        onnx.checker.check_model(proto)
    else:
        onnx.checker.check_model(proto, full_check=True)
    stage = StageModel(proto)
    lower(stage)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        proto.SerializeToString(), options, disabled_optimizers=list(stage.disabled_optimizers)
    )
    read = {item.name for item in session.get_inputs()}
    arrays = {name: to_array(tensor) for name, tensor in feed.items() if name in read}
    return [to_tensor(array) for array in HostSession(session).run(arrays)]


def to_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as an array, of :mod:`ml_dtypes`'s type where numpy has none."""
    plain = tensor.detach().contiguous()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return plain.numpy()


def to_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return an array as a tensor."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def assert_near(
    actual: torch.Tensor, expected: torch.Tensor, tolerance: float | None, title: str
) -> None:
    """Assert that a result equals another up to roundings.

    Args:
        actual: What the translation gave.
        expected: What torch gave; whatever is not finite must be met exactly.
        tolerance: See :func:`check_operator`.
        title: What to call the result in a failure.
    """
    if not expected.dtype.is_floating_point:
        assert torch.equal(actual, expected), f"{title} differs"
        return
    if tolerance is None:
        tolerance = TOLERANCES[expected.dtype]
    got, want = actual.double(), expected.double()
    finite = want.isfinite()
    strange = (got != want) & ~(got.isnan() & want.isnan()) & ~finite
    assert not strange.any(), f"{title} differs where torch's is not finite"
    if finite.any():
        magnitude = float(want[finite].abs().max())
        error = float((got - want)[finite].abs().max())
        assert error <= tolerance * magnitude, (
            f"{title}: error {error:.3g}, largest magnitude {magnitude:.3g}"
        )
