"""``samba-port run``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "run",
    question="What does it compute, and what is copied between host and RDU?",
    group=HelpGroup.CHECK,
    place=60,
    isolated=True,
    documents={"run": "samba_onnx.tools.run.run_report:RunReport"},
)
