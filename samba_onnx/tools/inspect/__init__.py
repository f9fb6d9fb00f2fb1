"""``samba-port inspect``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "inspect",
    question="What is in this PEF, and is it whole?",
    group=HelpGroup.PORT,
    place=50,
)
