"""``samba-port lint``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "lint",
    question="What in this Python program will hurt on an RDU?",
    place=140,
    documents={"lint": "samba_onnx.report.lint:LintReport"},
    module="samba_onnx.cli.linting",
)
