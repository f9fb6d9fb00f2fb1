"""Write the JSON schemas of all documents: ``python -m samba_onnx.report.schemas docs``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from samba_onnx.report.calibration import CalibrationReport
from samba_onnx.report.comparison import VerificationReport
from samba_onnx.report.difference import DifferenceReport
from samba_onnx.report.documents import json_schema
from samba_onnx.report.environment import EnvironmentReport
from samba_onnx.report.lint import LintReport
from samba_onnx.report.manifest_schema import manifest_schema
from samba_onnx.report.reduction import ReductionReport
from samba_onnx.report.report import Report
from samba_onnx.report.run import RunReport
from samba_onnx.report.scaling import ScalingReport
from samba_onnx.report.survey import SurveyReport
from samba_onnx.report.targets import OperatorTableReport, TargetListReport
from samba_onnx.report.trained import TrainedModelReport
from samba_onnx.report.values import ValueComparisonReport

DOCUMENTS: dict[str, type] = {
    "report": Report,
    "run": RunReport,
    "scaling": ScalingReport,
    "verification": VerificationReport,
    "values": ValueComparisonReport,
    "reduction": ReductionReport,
    "difference": DifferenceReport,
    "survey": SurveyReport,
    "operators": OperatorTableReport,
    "targets": TargetListReport,
    "trained": TrainedModelReport,
    "lint": LintReport,
    "environment": EnvironmentReport,
    "calibration": CalibrationReport,
}
"""Records that are documents, by the name of their schema file."""


def write_schemas(folder: Path) -> None:
    """Write ``NAME.schema.json`` for every document, and for the manifest of a PEF.

    Args:
        folder: Where to.
    """
    schemas = {name: json_schema(document) for name, document in DOCUMENTS.items()}
    # A manifest is read by rules of its own, of which pydantic knows nothing: its schema is made from
    # these.
    for name, schema in {**schemas, "manifest": manifest_schema()}.items():
        text = json.dumps(schema, indent=2) + "\n"
        (folder / f"{name}.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
