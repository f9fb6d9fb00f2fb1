"""``samba-port train-export``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "train-export",
    question="What is this ONNX model with the weights of that training run?",
    group=HelpGroup.PROGRAMS,
    place=150,
    isolated=True,
    documents={"trained": "samba_onnx.tools.train_export.train_export_report:TrainedModelReport"},
)
