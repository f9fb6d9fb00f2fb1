"""``samba-port validate``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "validate",
    question="How near are modelled times to those that this device takes, and which profile fits it?",
    group=HelpGroup.DEVICES,
    place=175,
    documents={"validation": "samba_onnx.tools.validate.validate_report:ValidationReport"},
)
