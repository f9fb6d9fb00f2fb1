"""``samba-port lint``: what in a program or module will hurt on an RDU, told from its text before it runs.

Rules are rows of one table, checks find their places in the syntax tree of the standard library,
and nothing of a program is imported or executed.
"""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "lint",
    question="What in this Python program will hurt on an RDU?",
    group=HelpGroup.PROGRAMS,
    place=130,
    documents={"lint": "samba_onnx.tools.lint.lint_report:LintReport"},
)
