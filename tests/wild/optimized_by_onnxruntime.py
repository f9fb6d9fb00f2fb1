"""Models of torch, written back by onnxruntime's session and by its optimizer for transformers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from tests.wild.subject import Subjects, rewritten_by
from tests.wild.torch_exports import exported, traced

SESSION = Subjects("onnxruntime")
TRANSFORMERS = Subjects("onnxruntime.transformers")

Original = Callable[[], onnx.ModelProto]


def _optimized(original: Original, level: str) -> onnx.ModelProto:
    import onnxruntime

    def write(source: Path, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(
            onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}"
        )
        options.optimized_model_filepath = str(path)
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    return rewritten_by(original(), write)


def _add(name: str, level: str, original: Original, **dims: int) -> None:
    build = functools.partial(_optimized, original, level.upper())
    SESSION.add(f"{name}-{level}", build, dims=dims)


_add("resnet50", "basic", functools.partial(traced, "resnet50"))
_add("resnet50", "extended", functools.partial(exported, "resnet50"))
_add("mobilenet_v3", "all", functools.partial(traced, "mobilenet_v3", dynamic=True), batch=1)
_add("unet", "extended", functools.partial(traced, "unet"))
_add("bert", "extended", functools.partial(traced, "bert", dynamic=True), batch=2, sequence=6)
_add("bert", "all", functools.partial(exported, "bert"))
_add("gpt2", "all", functools.partial(exported, "gpt2"))
_add("llama", "extended", functools.partial(exported, "llama"))
_add("vit", "all", functools.partial(traced, "vit"))
_add("lstm", "basic", functools.partial(traced, "lstm", dynamic=True), batch=2, sequence=5)


def _fused(
    original: Original,
    kind: str,
    *,
    half: bool = False,
    keep_io_types: bool = True,
    opt_level: int = 0,
) -> onnx.ModelProto:
    from onnxruntime.transformers import optimizer

    model = optimizer.optimize_model(
        original(), kind, num_heads=4, hidden_size=32, opt_level=opt_level
    )
    if half:
        model.convert_float_to_float16(keep_io_types=keep_io_types)
    proto: onnx.ModelProto = model.model
    return proto


def _fuse(name: str, kind: str, original: Original, dims: Any = None, **options: Any) -> None:
    TRANSFORMERS.add(name, functools.partial(_fused, original, kind, **options), dims=dims)


_fuse("bert", "bert", functools.partial(traced, "bert"))
_fuse(
    "bert-dynamic",
    "bert",
    functools.partial(traced, "bert", dynamic=True),
    {"batch": 2, "sequence": 6},
)
_fuse("bert-float16", "bert", functools.partial(exported, "bert"), half=True)
# onnxruntime loads this one only without the fusion that made its names (``gemm_input_shape``).
_fuse(
    "bert-float16 throughout, behind the session's level basic",
    "bert",
    functools.partial(traced, "bert"),
    half=True,
    keep_io_types=False,
    opt_level=1,
)
_fuse("gpt2", "gpt2", functools.partial(exported, "gpt2"))
_fuse("vit", "vit", functools.partial(traced, "vit"))
_fuse("whisper_encoder", "bart", functools.partial(traced, "whisper_encoder"))
_fuse("llama", "gpt2", functools.partial(exported, "llama"))
