"""``samba-port ops``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "ops",
    question="Which operators run on the RDU, within which limits, and how is that known?",
    place=160,
    documents={"operators": "samba_onnx.tools.ops.ops_report:OperatorTableReport"},
)
