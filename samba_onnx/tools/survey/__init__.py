"""``samba-port survey``."""

from samba_onnx.tools import Tool

TOOL = Tool(
    "survey",
    question="What would run where of all of these models, and what would help most of them?",
    place=30,
    documents={"survey": "samba_onnx.tools.survey.survey_report:SurveyReport"},
)
