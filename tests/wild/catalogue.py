"""Every subject by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.wild import number_types, transformers_exports  # noqa: F401  enter subjects of torch's exporters
from tests.wild.half_precision import HALF
from tests.wild.hand_written import WRITTEN
from tests.wild.held_back import ONNX, ONNXSCRIPT
from tests.wild.held_back import TOOLS as ONNXRUNTIME_TOOLS
from tests.wild.optimized_by_onnxruntime import SESSION, TRANSFORMERS
from tests.wild.published import PUBLISHED
from tests.wild.quantized import QUANTIZED
from tests.wild.sklearn_models import SKLEARN
from tests.wild.subject import Subject
from tests.wild.torch_exports import DYNAMO, SCRIPT

TOOLS: Final = (
    SKLEARN,
    DYNAMO,
    SCRIPT,
    QUANTIZED,
    HALF,
    SESSION,
    TRANSFORMERS,
    WRITTEN,
    ONNX,
    ONNXSCRIPT,
    ONNXRUNTIME_TOOLS,
    PUBLISHED,
)
"""Subjects by tool."""

SUBJECTS: Final[Mapping[str, Subject]] = MappingProxyType(
    {subject.name: subject for tool in TOOLS for subject in tool.entries}
)
"""By name."""

assert len(SUBJECTS) == sum(len(tool.entries) for tool in TOOLS), "two subjects have one name"
