"""``samba-port ops``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "ops",
    question="Which operators run on the RDU, within which limits, and how is that known?",
    group=HelpGroup.DEVICES,
    place=180,
    documents={"operators": "samba_onnx.tools.ops.ops_report:OperatorTableReport"},
)
