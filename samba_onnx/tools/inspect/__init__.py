"""``samba-port inspect``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "inspect",
    question="What is in this PEF, and is it whole?",
    place=40,
)
