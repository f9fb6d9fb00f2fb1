"""``samba-port data-prep``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "data-prep",
    question="What does training read, made of this text?",
    group=HelpGroup.PROGRAMS,
    place=160,
    commands=("pipeline", "data_prep", "decode"),
)
