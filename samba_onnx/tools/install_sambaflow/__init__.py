"""``samba-port install-sambaflow``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "install-sambaflow",
    question="How does plain `python train.py` find sambaflow?",
    group=HelpGroup.PROGRAMS,
    place=120,
    documents={
        "environment": "samba_onnx.tools.install_sambaflow.install_sambaflow_report:EnvironmentReport"
    },
)
