"""``samba-port data-prep``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "data-prep",
    question="What does training read, made of this text?",
    place=180,
    commands=("pipeline", "data_prep", "decode"),
    page="data_preparation.md",
)
