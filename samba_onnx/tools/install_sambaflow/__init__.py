"""``samba-port install-sambaflow``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "install-sambaflow",
    question="How does plain `python train.py` find sambaflow?",
    place=130,
    documents={
        "environment": "samba_onnx.tools.install_sambaflow.install_sambaflow_report:EnvironmentReport"
    },
)
