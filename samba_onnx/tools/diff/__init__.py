"""``samba-port diff``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "diff",
    question="What moved between these two conversions, why, and is it worse?",
    place=90,
    isolated=True,
    documents={"difference": "samba_onnx.report.difference:DifferenceReport"},
)
