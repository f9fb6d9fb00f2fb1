"""``samba-port survey``."""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "survey",
    question="What would run where of all of these models, and what would help most of them?",
    group=HelpGroup.PORT,
    place=40,
    documents={"survey": "samba_onnx.tools.survey.survey_report:SurveyReport"},
)
