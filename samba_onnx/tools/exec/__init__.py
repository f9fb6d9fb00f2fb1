"""``samba-port exec``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "exec",
    question="What does this program do, which was written for SambaFlow?",
    group=HelpGroup.PROGRAMS,
    place=110,
    passes_on=True,
)
