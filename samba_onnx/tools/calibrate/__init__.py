"""``samba-port calibrate``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "calibrate",
    question="How fast is this machine's CPU, for the times of fallbacks?",
    place=150,
    documents={"calibration": "samba_onnx.tools.calibrate.calibrate_report:CalibrationReport"},
)
