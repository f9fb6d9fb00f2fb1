"""``samba-port verify``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "verify",
    question="Are the numbers those of the original?",
    group=HelpGroup.CHECK,
    place=70,
    isolated=True,
    documents={"verification": "samba_onnx.tools.verify.verify_report:VerificationReport"},
)
