"""``samba-port analyze``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "analyze",
    question="What would run where?",
    place=20,
    isolated=True,
    documents={"report": "samba_onnx.report.report:Report"},
)
