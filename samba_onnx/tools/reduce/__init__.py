"""``samba-port reduce``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "reduce",
    question="Which few nodes of the model show the fault of this PEF?",
    group=HelpGroup.CHECK,
    place=90,
    isolated=True,
    documents={"reduction": "samba_onnx.tools.reduce.reduce_report:ReductionReport"},
)
