"""``samba-port plan``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "plan",
    question="How does this training step scale over several RDUs?",
    group=HelpGroup.PROGRAMS,
    place=140,
    documents={"scaling": "samba_onnx.tools.plan.plan_report:ScalingReport"},
)
