"""``samba-port convert``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "convert",
    question="Make a PEF of this model; what runs where?",
    place=10,
    isolated=True,
)
