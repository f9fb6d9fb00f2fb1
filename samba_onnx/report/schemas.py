"""Write the JSON schemas of all documents: ``python -m samba_onnx.report.schemas docs``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from samba_onnx.report.documents import json_schema
from samba_onnx.report.manifest_schema import manifest_schema
from samba_onnx.tools import find_tools


def documents() -> dict[str, type]:
    """Return the records that are documents, by the name of their schema file: those of all tools."""
    return {
        name: document
        for tool in find_tools().values()
        for name, document in tool.document_types().items()
    }


def write_schemas(folder: Path) -> None:
    """Write ``NAME.schema.json`` for every document, and for the manifest of a PEF.

    Args:
        folder: Where to.
    """
    schemas = {name: json_schema(document) for name, document in documents().items()}
    # A manifest is read by rules of its own, of which pydantic knows nothing: its schema is made from
    # these.
    for name, schema in {**schemas, "manifest": manifest_schema()}.items():
        text = json.dumps(schema, indent=2) + "\n"
        (folder / f"{name}.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
