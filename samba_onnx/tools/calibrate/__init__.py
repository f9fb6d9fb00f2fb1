"""``samba-port calibrate``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "calibrate",
    question="How fast is this machine's CPU, for the times of fallbacks?",
    group=HelpGroup.DEVICES,
    place=170,
    documents={"calibration": "samba_onnx.tools.calibrate.calibrate_report:CalibrationReport"},
)
