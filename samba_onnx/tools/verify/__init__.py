"""``samba-port verify``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "verify",
    question="Are the numbers those of the original?",
    place=60,
    isolated=True,
    documents={"verification": "samba_onnx.tools.verify.verify_report:VerificationReport"},
)
