"""``samba-port exec``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "exec",
    question="What does this program do, which was written for SambaFlow?",
    place=120,
    passes_on=True,
)
