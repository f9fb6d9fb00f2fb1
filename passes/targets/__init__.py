"""Device profiles: operator tables with their evidence, and hardware figures."""

from samba_onnx.passes.targets.conditions import (
    LOOPING,
    listed,
    parted,
    with_condition,
)
from samba_onnx.passes.targets.describe import (
    describe_limits,
    describe_operands,
    describe_types,
)
from samba_onnx.passes.targets.markdown import operator_table_markdown
from samba_onnx.passes.targets.rows import OperandLimits, OperatorRow, Status, UnsupportedRow
from samba_onnx.passes.targets.target import Support, Target, load_target
from samba_onnx.passes.targets.target_files import available_targets

__all__ = [
    "LOOPING",
    "OperandLimits",
    "OperatorRow",
    "Status",
    "Support",
    "Target",
    "UnsupportedRow",
    "available_targets",
    "describe_limits",
    "describe_operands",
    "describe_types",
    "listed",
    "load_target",
    "operator_table_markdown",
    "parted",
    "with_condition",
]
