"""``samba-port reduce``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "reduce",
    question="Which few nodes of the model show the fault of this PEF?",
    place=80,
    isolated=True,
    documents={"reduction": "samba_onnx.tools.reduce.reduce_report:ReductionReport"},
)
