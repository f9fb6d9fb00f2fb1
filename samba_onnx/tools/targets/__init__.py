"""``samba-port targets``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "targets",
    question="Which devices are there, and which of their figures are assumptions?",
    place=170,
    documents={"targets": "samba_onnx.tools.targets.targets_report:TargetListReport"},
)
