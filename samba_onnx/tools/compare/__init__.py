"""``samba-port compare``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "compare",
    question="Which value of the model is the first that the PEF computes differently?",
    group=HelpGroup.CHECK,
    place=80,
    isolated=True,
    documents={"values": "samba_onnx.tools.compare.compare_report:ValueComparisonReport"},
)
