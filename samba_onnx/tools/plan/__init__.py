"""``samba-port plan``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "plan",
    question="How does this training step scale over several RDUs?",
    place=100,
    documents={"scaling": "samba_onnx.tools.plan.plan_report:ScalingReport"},
)
