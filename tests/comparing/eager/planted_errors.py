"""Errors that somebody could make in a translation, one per entry, and the network to see them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import onnx_ir as ir

from samba_onnx.export.operators.registry import Context, Translation


@dataclass(frozen=True)
class Planted:
    """One error."""

    network: str
    """Which network of ``networks`` shows it."""
    operator: str
    """Whose translation is wrong."""
    wrong: Callable[[Translation], Translation]
    """Returns the wrong translation for the right one."""
    shows_fresh: bool = True
    """Whether it changes anything as long as biases are 0."""


def operand(index: int, change: Callable[[Any], Any]) -> Callable[[Translation], Translation]:
    """Let a translation have another operand than the one that it was given."""

    def wrong(right: Translation) -> Translation:
        def translation(context: Context, *operands: Any) -> Any:
            changed = [change(o) if i == index else o for i, o in enumerate(operands)]
            return right(context, *changed)

        return translation

    return wrong


def result(
    index: int, change: Callable[[Context, ir.Value, Sequence[Any]], ir.Value]
) -> Callable[[Translation], Translation]:
    """Let one result of a translation be another."""

    def wrong(right: Translation) -> Translation:
        def translation(context: Context, *operands: Any) -> Any:
            answer = right(context, *operands)
            results = list(answer) if isinstance(answer, list) else [answer]
            if results[index] is not None:
                results[index] = change(context, results[index], operands)
            return results if isinstance(answer, list) else results[0]

        return translation

    return wrong


def scaled(factor: float, index: int = 0) -> Callable[[Translation], Translation]:
    return result(index, lambda context, value, _: context.build.multiply(value, factor))


def shifted(amount: float, index: int = 0) -> Callable[[Translation], Translation]:
    return result(index, lambda context, value, _: context.build.add(value, amount))


def read_instead(position: int, index: int = 0) -> Callable[[Translation], Translation]:
    """Return an operand in the place of a result: what should have been computed was not."""
    return result(index, lambda context, value, operands: operands[position])


def rounded_to(dtype: ir.DataType, index: int = 0) -> Callable[[Translation], Translation]:
    def change(context: Context, value: ir.Value, operands: Sequence[Any]) -> ir.Value:
        assert value.dtype is not None
        return context.build.cast(context.build.cast(value, dtype), value.dtype)

    return result(index, change)


def exchanged_axes(index: int = 0) -> Callable[[Translation], Translation]:
    """Exchange the last two axes of a result, where they are of one size."""

    def change(context: Context, value: ir.Value, operands: Sequence[Any]) -> ir.Value:
        assert value.shape is not None
        sizes = value.shape.numpy()
        if len(sizes) < 2 or sizes[-1] != sizes[-2]:
            return value
        order = [*range(len(sizes) - 2), len(sizes) - 1, len(sizes) - 2]
        return context.build.transpose(value, order)

    return result(index, change)


def attribute(name: str, change: Callable[[Any], Any]) -> Callable[[Translation], Translation]:
    """Change an attribute of the node that makes the first result."""

    def edit(context: Context, value: ir.Value, operands: Sequence[Any]) -> ir.Value:
        node = value.producer()
        assert node is not None
        if name in node.attributes:
            old = node.attributes[name]
            node.attributes[name] = ir.Attr(name, old.type, change(old.value))
        return value

    return result(0, edit)


def _moved(pads: Sequence[int]) -> list[int]:
    """Take one row from the beginning of every axis, and give it to its end."""
    half = len(pads) // 2
    inner = [max(begin - 1, 0) for begin in pads[:half]]
    return [*inner, *(pads[half + i] + pads[i] - inner[i] for i in range(half))]


def constant_statistics(right: Translation) -> Translation:
    """Leave out what mean and variance add to the gradient of a normalisation."""

    def translation(context: Context, gradient: Any, value: Any, weight: Any, *rest: Any) -> Any:
        _, _, mean, inverse, _, epsilon, mask = rest
        build = context.build
        variance = build.subtract(build.divide(1.0, build.multiply(inverse, inverse)), epsilon)
        operands = (gradient, value, weight, mean, variance, None, None)
        return right(context, *operands, False, epsilon, mask)

    return translation


NORM: Final = "_native_batch_norm_legit_functional"
NORM_BACK: Final = "native_batch_norm_backward"
ERRORS: Final[dict[str, Planted]] = {
    "gradients of kernels are 1 % too large": Planted(
        "resnet", "convolution_backward", scaled(1.01, 1)
    ),
    "gradients of kernels are doubled": Planted("resnet", "convolution_backward", scaled(2, 1)),
    "gradients of kernels have the other sign": Planted(
        "mobilenet", "convolution_backward", scaled(-1, 1)
    ),
    "gradients of kernels are transposed": Planted(
        "resnet", "convolution_backward", exchanged_axes(1)
    ),
    "gradients before a convolution are 1 % too large": Planted(
        "densenet", "convolution_backward", scaled(1.01, 0)
    ),
    "gradients of a convolution's bias are doubled": Planted(
        "mobilenet", "convolution_backward", scaled(2, 2)
    ),
    "kernels are transposed": Planted(
        "inception",
        "convolution",
        lambda right: (
            lambda context, data, weight, *rest: right(
                context, data, exchanged_axes()(lambda c, w: w)(context, weight), *rest
            )
        ),
    ),
    "a convolution pads one row too far": Planted(
        "resnet", "convolution", attribute("pads", _moved)
    ),
    "a convolution forgets its bias": Planted(
        "mobilenet", "convolution", operand(2, lambda _: None)
    ),
    "the eps of a normalisation is 1e-3": Planted("resnet", NORM, operand(7, lambda _: 1e-3)),
    "the momentum is 0.2": Planted("densenet", NORM, operand(6, lambda _: 0.2)),
    "the momentum is 1 minus momentum": Planted("resnet", NORM, operand(6, lambda m: 1 - m)),
    "the running mean stays": Planted("resnet", NORM, read_instead(3, 3)),
    "the running variance stays": Planted("mobilenet", NORM, read_instead(4, 4)),
    "the running variance is that of the batch": Planted("resnet", NORM, scaled(255 / 256, 4)),
    "normalisation forgets its bias": Planted(
        "resnet", NORM, operand(2, lambda _: None), shows_fresh=False
    ),
    "the mean is taken for a constant": Planted("resnet", NORM_BACK, constant_statistics),
    "gradients of scales are 1 % too large": Planted("densenet", NORM_BACK, scaled(1.01, 1)),
    "gradients of biases have the other sign": Planted("mobilenet", NORM_BACK, scaled(-1, 2)),
    "gradients before a normalisation are 1 % too large": Planted(
        "inception", NORM_BACK, scaled(1.01, 0)
    ),
    "a relu leaves a little": Planted("densenet", "relu", shifted(1e-3)),
    "a relu is computed in float16": Planted("resnet", "relu", rounded_to(ir.DataType.FLOAT16)),
    "a relu lets everything through": Planted("densenet", "relu", read_instead(0)),
    "a relu's gradient passes at negative numbers": Planted(
        "resnet", "where", lambda right: lambda c, mask, left, other: other
    ),
    "a maximum's gradient is halved": Planted(
        "inception", "max_pool2d_with_indices_backward", scaled(0.5)
    ),
    "the padding counts in no average": Planted(
        "inception", "avg_pool2d", operand(5, lambda _: False)
    ),
    "an average's gradient is 1 % too large": Planted(
        "densenet", "avg_pool2d_backward", scaled(1.01)
    ),
    "a mean is divided by one less": Planted("resnet", "mean", scaled(4 / 3)),
    "what is put side by side is exchanged": Planted(
        "inception", "cat", operand(0, lambda tensors: list(reversed(tensors)))
    ),
    "a slice begins one too late": Planted(
        "densenet",
        "slice",
        lambda right: (
            lambda c, value, axis, begin, end, step=1: right(
                c, value, axis, *((begin - 1, end - 1) if begin else (begin, end)), step
            )
        ),
    ),
    "hardswish is 0.1 % too large": Planted("mobilenet", "hardswish", scaled(1.001)),
    "hardsigmoid's gradient has the other sign": Planted(
        "mobilenet", "hardsigmoid_backward", scaled(-1)
    ),
    "hardswish's gradient is that of the identity": Planted(
        "mobilenet", "hardswish_backward", read_instead(0)
    ),
    "a layer forgets its bias": Planted(
        "transformer", "addmm", lambda right: lambda c, bias, a, b, *s: c.build.matmul(a, b)
    ),
    "the softmax is over another axis": Planted("transformer", "_softmax", operand(1, lambda _: 1)),
    "softmax's gradient lacks a term": Planted(
        "transformer",
        "_softmax_backward_data",
        lambda right: lambda c, gradient, value, *rest: c.build.multiply(gradient, value),
    ),
    "the logarithm of the softmax is over another axis": Planted(
        "resnet", "_log_softmax", operand(1, lambda _: 0)
    ),
    "its gradient is 1 % too large": Planted(
        "transformer", "_log_softmax_backward_data", scaled(1.01)
    ),
    "a loss's gradient is not averaged": Planted("resnet", "nll_loss_backward", scaled(4)),
    "the eps of a layer's normalisation is 1e-3": Planted(
        "transformer", "native_layer_norm", operand(4, lambda _: 1e-3)
    ),
    "gradients of a layer's scales are exchanged": Planted(
        "transformer", "native_layer_norm_backward", scaled(1.01, 1)
    ),
    "gelu by its approximation": Planted("transformer", "gelu", operand(1, lambda _: "tanh")),
    "gelu's gradient by its approximation": Planted(
        "transformer", "gelu_backward", operand(2, lambda _: "tanh")
    ),
    "square weights are not transposed": Planted(
        "transformer", "t", lambda right: lambda c, value: exchanged_axes()(right)(c, value)
    ),
    "attention is 1 % too large": Planted("transformer", "bmm", scaled(1.01)),
    "the gradients of a vocabulary are doubled": Planted(
        "transformer", "embedding_dense_backward", scaled(2)
    ),
    "a gate is 0.1 % too large": Planted("recurrent", "samba::lstm_layer", scaled(1.001)),
    "the last step of a cell is lost": Planted("recurrent", "samba::cell_recurrence", scaled(0.99)),
    "the gradient of tanh lacks a part": Planted("recurrent", "rsub", shifted(0.01)),
    "a recurrence is computed in bfloat16": Planted(
        "recurrent", "samba::gru_layer", rounded_to(ir.DataType.BFLOAT16)
    ),
    "sigmoid is 0.1 % too large": Planted("recurrent", "sigmoid", scaled(1.001)),
}
"""What is wrong, by a sentence that says it."""
