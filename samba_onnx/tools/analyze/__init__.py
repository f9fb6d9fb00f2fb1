"""``samba-port analyze``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "analyze",
    question="What would run where?",
    group=HelpGroup.PORT,
    place=30,
    isolated=True,
    documents={"report": "samba_onnx.report.report:Report"},
)
