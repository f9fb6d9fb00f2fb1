"""Models of torch, converted to float16 by onnxconverter-common and onnxruntime."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import onnx

from tests.wild.subject import Subjects
from tests.wild.torch_exports import exported, traced

HALF = Subjects("onnxconverter-common")


def _half(original: Callable[[], onnx.ModelProto], **options: Any) -> onnx.ModelProto:
    from onnxconverter_common import float16

    model: onnx.ModelProto = float16.convert_float_to_float16(original(), **options)
    return model


def _add(name: str, original: Callable[[], onnx.ModelProto], **options: Any) -> None:
    dims = options.pop("dims", None)
    HALF.add(name, functools.partial(_half, original, **options), dims=dims)


_add("resnet50-float16", functools.partial(exported, "resnet50"))
_add(
    "mobilenet_v3-float16, float32 outside",
    functools.partial(traced, "mobilenet_v3"),
    keep_io_types=True,
)
_add(
    "bert-float16",
    functools.partial(exported, "bert", dynamic=True),
    dims={"batch": 2, "sequence": 6},
)
_add(
    "vit-float16, Softmax in float32",
    functools.partial(exported, "vit"),
    op_block_list=["Softmax", "LayerNormalization"],
)
_add("lstm-float16", functools.partial(traced, "lstm"))
_add("llama-float16, float32 outside", functools.partial(exported, "llama"), keep_io_types=True)
