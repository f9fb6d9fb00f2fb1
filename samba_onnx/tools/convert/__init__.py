"""``samba-port convert``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "convert",
    question="Make a PEF of this model; what runs where?",
    group=HelpGroup.PORT,
    place=20,
    isolated=True,
)
