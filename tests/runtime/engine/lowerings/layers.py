"""Gradients of convolutions as the compiler writes them, for the tests of their lowerings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir
import torch

from tests.export.operators.harness import run_model, translate_operator


@dataclass(frozen=True)
class Layer:
    """A convolution of torch's, with sizes per axis in lists."""

    data: tuple[int, ...]
    weight: tuple[int, ...]
    stride: Sequence[int] = (1, 1)
    padding: Sequence[int] = (0, 0)
    dilation: Sequence[int] = (1, 1)
    transposed: bool = False
    output_padding: Sequence[int] = (0, 0)
    groups: int = 1

    @property
    def arguments(self) -> tuple[object, ...]:
        """What follows data and weight in torch's operators, the bias left out."""
        lists = [list(one) for one in (self.stride, self.padding, self.dilation)]
        return (*lists, self.transposed, list(self.output_padding), self.groups)


class Gradients:
    """The backward of a layer: torch's autograd, and the plain form that is exported."""

    def __init__(
        self, layer: Layer, mask: Sequence[bool], dtype: torch.dtype = torch.float32
    ) -> None:
        """Differentiate a layer for small whole numbers, of which all sums are exact in float32.

        Args:
            layer: The convolution.
            mask: Whether the gradients of input and weight are wanted.
            dtype: Of all tensors.
        """
        generator = torch.Generator().manual_seed(0)

        def whole(*shape: int) -> torch.Tensor:
            return torch.randint(-3, 4, shape, generator=generator).to(dtype)

        data, weight = (whole(*shape).requires_grad_() for shape in (layer.data, layer.weight))
        output = torch.ops.aten.convolution(data, weight, None, *layer.arguments)
        gradient = whole(*output.shape)
        both = torch.autograd.grad(output, [data, weight], gradient)
        self.expected = [one for one, wanted in zip(both, mask, strict=True) if wanted]
        """Torch's own gradients, those that are wanted."""
        operands = [one.detach() for one in (gradient, data, weight)]
        arguments = (*operands, None, *layer.arguments, [*mask, False])
        outcomes = [one if wanted else None for one, wanted in zip(both, mask, strict=True)]
        overload = torch.ops.aten.convolution_backward.default
        model, self._feed = translate_operator(overload, arguments, {}, [*outcomes, None])
        self.plain: onnx.ModelProto = ir.to_proto(model)
        """The exported model of the gradients."""

    def run(self, model: onnx.ModelProto) -> list[torch.Tensor]:
        """Return what onnxruntime computes by a model of the same interface."""
        return run_model(ir.from_proto(model), self._feed)

    def lowered(self, lower: object) -> tuple[onnx.ModelProto, dict[str, str]]:
        """Return the model as a lowering changes it, and the reasons that the lowering returns."""
        assert callable(lower)
        model = onnx.ModelProto()
        model.CopyFrom(self.plain)
        reasons = lower(model)
        return model, reasons


def operators(model: onnx.ModelProto) -> list[str]:
    """Return the operators of a model in the order of its nodes, constants left out."""
    return [node.op_type for node in model.graph.node if node.op_type != "Constant"]
