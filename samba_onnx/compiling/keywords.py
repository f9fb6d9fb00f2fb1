"""The options as keywords of functions, for type checkers and editors.

Written by ``python -m docs.generators.compile_keywords`` from the fields of ``CompileOptions``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from samba_onnx.compiling.model_options import InputShapes, Sizes
    from samba_onnx.passes.targets import Target
    from samba_onnx.pef.host_summary import HostSummary

__all__ = ["OnnxKeywords", "ProgramKeywords", "TorchKeywords"]


class ProgramKeywords(TypedDict, total=False):
    """Options of compiling programs, whatever made them."""

    target: str | os.PathLike[str] | Target | None
    kernel_looping: bool | None
    level: str | None
    optimization_rules: str | os.PathLike[str] | None
    default_rules: bool | None
    placement: str | None
    host: str | os.PathLike[str] | HostSummary | None
    legalise: str | None
    no_legalise: str | Sequence[str] | None
    check_passes: bool | None
    n_chips: int | None
    tensor_parallel: str | None


class OnnxKeywords(ProgramKeywords, total=False):
    """Options of compiling an ONNX model."""

    sample: bool | None
    sample_seconds: float | None
    seed: int | None
    custom_ops: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    trial: bool | None
    dims: Sizes | None
    input_shapes: InputShapes | None
    keep_dynamic: bool | None
    constants: Mapping[str, Any] | None
    float16: str | None
    precision: str | None


class TorchKeywords(ProgramKeywords, total=False):
    """Options of compiling a torch module."""

    sample: bool | None
    precision: str | None
    stochastic_rounding: str | Sequence[str] | frozenset[str] | None
    check: bool | None
    loss_indices: Sequence[int] | None
    spatial_batches: int | None
