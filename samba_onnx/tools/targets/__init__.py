"""``samba-port targets``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "targets",
    question="Which devices are there, and which of their figures are assumptions?",
    group=HelpGroup.DEVICES,
    place=190,
    documents={"targets": "samba_onnx.tools.targets.targets_report:TargetListReport"},
)
