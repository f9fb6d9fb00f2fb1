"""``samba-port diff``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "diff",
    question="What moved between these two conversions, why, and is it worse?",
    group=HelpGroup.CHECK,
    place=100,
    isolated=True,
    documents={"difference": "samba_onnx.report.difference:DifferenceReport"},
)
