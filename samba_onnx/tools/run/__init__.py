"""``samba-port run``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "run",
    question="What does it compute, and what is copied between host and RDU?",
    place=50,
    isolated=True,
    documents={"run": "samba_onnx.tools.run.run_report:RunReport"},
)
