"""Models of torch, quantised by onnxruntime: static and dynamic, in every format that it writes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.wild.subject import Subjects, rewritten_by
from tests.wild.torch_exports import exported, traced

QUANTIZED = Subjects("onnxruntime.quantization")

Original = Callable[[], onnx.ModelProto]


class _Samples:
    """What the quantizer calibrates with: as many random inputs as it asks for."""

    def __init__(self, model: onnx.ModelProto, count: int = 4) -> None:
        self._model = model
        self._left = count
        self._generator = np.random.default_rng(11)

    def get_next(self) -> dict[str, Any] | None:
        if not self._left:
            return None
        self._left -= 1
        return {value.name: self._draw(value) for value in self._model.graph.input}

    def _draw(self, value: onnx.ValueInfoProto) -> Any:
        kind = value.type.tensor_type
        shape = [dim.dim_value or 2 for dim in kind.shape.dim]
        if kind.elem_type == onnx.TensorProto.INT64:
            # Nothing is masked: minus infinity would be the lower end of a range.
            return np.ones(shape, np.int64)
        return self._generator.normal(size=shape).astype(np.float32)


def prepared(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model after the preparation that onnxruntime asks for before quantising."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    return rewritten_by(
        model, lambda source, path: quant_pre_process(source, path, skip_symbolic_shape=True)
    )


def _static(original: Original, **options: Any) -> onnx.ModelProto:
    from onnxruntime.quantization import quantize_static

    model = prepared(original())

    def write(source: Path, path: Path) -> None:
        quantize_static(source, path, _Samples(model), **options)

    return rewritten_by(model, write)


def _dynamic(original: Original, **options: Any) -> onnx.ModelProto:
    from onnxruntime.quantization import quantize_dynamic

    return rewritten_by(
        prepared(original()), lambda source, path: quantize_dynamic(source, path, **options)
    )


def _types(activation: str, weight: str, form: str = "QDQ") -> dict[str, Any]:
    from onnxruntime.quantization import QuantFormat, QuantType

    return {
        "activation_type": getattr(QuantType, activation),
        "weight_type": getattr(QuantType, weight),
        "quant_format": getattr(QuantFormat, form),
    }


def _add_static(
    name: str, original: Original, *types: str, dims: dict[str, int] | None = None, **options: Any
) -> None:
    def build() -> onnx.ModelProto:
        return _static(original, **_types(*types), **options)

    QUANTIZED.add(name, build, dims=dims)


def _add_dynamic(
    name: str, original: Original, dims: dict[str, int] | None = None, **options: Any
) -> None:
    QUANTIZED.add(name, functools.partial(_dynamic, original, **options), dims=dims)


_RESNET = functools.partial(exported, "resnet50")
_MOBILENET = functools.partial(exported, "mobilenet_v3")
_UNET = functools.partial(exported, "unet")
_LENET = functools.partial(traced, "lenet")
_MLP = functools.partial(traced, "mlp", dynamic=True)
_BERT = functools.partial(traced, "bert")
_VIT = functools.partial(exported, "vit")
_LSTM = functools.partial(traced, "lstm")
_GPT2 = functools.partial(exported, "gpt2")
_LLAMA = functools.partial(exported, "llama")

_add_static("resnet50-static, QDQ, per tensor", _RESNET, "QInt8", "QInt8")
_add_static("resnet50-static, QDQ, per channel", _RESNET, "QUInt8", "QInt8", per_channel=True)
_add_static("resnet50-static, QOperator", _RESNET, "QUInt8", "QUInt8", "QOperator")
_add_static(
    "mobilenet_v3-static, QDQ, per channel, reduced range",
    _MOBILENET,
    "QUInt8",
    "QInt8",
    per_channel=True,
    reduce_range=True,
)
_add_static("unet-static, QDQ, 16 bits", _UNET, "QUInt16", "QUInt8")
_add_static(
    "lenet-static, QOperator, per channel", _LENET, "QInt8", "QInt8", "QOperator", per_channel=True
)
_add_static("mlp-static, QDQ, dynamic batch", _MLP, "QInt8", "QInt8", dims={"batch": 4})
_add_static(
    "bert-static, QDQ, symmetric activations",
    _BERT,
    "QInt8",
    "QInt8",
    extra_options={"ActivationSymmetric": True},
)
_add_static(
    "vit-static, QDQ, dedicated pairs",
    _VIT,
    "QInt8",
    "QInt8",
    extra_options={"DedicatedQDQPair": True, "QuantizeBias": False},
)
_add_dynamic("bert-dynamic", _BERT)
_add_dynamic("gpt2-dynamic, per channel", _GPT2, per_channel=True, reduce_range=True)
_add_dynamic("lstm-dynamic", _LSTM)
_add_dynamic("lenet-dynamic", _LENET)


def _four_bits(original: Original, form: str, **options: Any) -> onnx.ModelProto:
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(
        original(), block_size=16, quant_format=getattr(QuantFormat, form), **options
    )
    quantizer.process()
    model: onnx.ModelProto = quantizer.model.model
    return model


QUANTIZED.add(
    "llama-4 bits, QOperator, symmetric",
    functools.partial(_four_bits, _LLAMA, "QOperator", is_symmetric=True, accuracy_level=4),
)
QUANTIZED.add("llama-4 bits, QDQ", functools.partial(_four_bits, _LLAMA, "QDQ"))
QUANTIZED.add("bert-8 bits, QOperator", functools.partial(_four_bits, _BERT, "QOperator", bits=8))
