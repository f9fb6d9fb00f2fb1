"""``samba-port example``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "example",
    question="Is there a model to try this with?",
    place=5,
    documents={"example": "samba_onnx.tools.example.example_report:ExampleReport"},
)
