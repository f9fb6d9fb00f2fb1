"""``samba-port tokens``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "tokens",
    question="How fast would this language model answer?",
    group=HelpGroup.PORT,
    place=45,
    isolated=True,
    documents={"tokens": "samba_onnx.tools.tokens.tokens_report:TokensReport"},
)
