"""``samba-port example``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "example",
    question="Is there a model to try this with?",
    group=HelpGroup.PORT,
    place=10,
    documents={"example": "samba_onnx.tools.example.example_report:ExampleReport"},
)
