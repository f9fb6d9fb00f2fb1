"""Write ``samba_onnx/compiling/keywords.py``: the options as keywords that type checkers and editors know.

Run ``python -m docs.generators.compile_keywords``; a test holds the file to the fields.
"""

from __future__ import annotations

from pathlib import Path

from samba_onnx.compiling.option import Front
from samba_onnx.compiling.signatures import keyword_fields

PATH = Path(__file__).parents[2] / "samba_onnx" / "compiling" / "keywords.py"
HEAD = '''"""The options as keywords of functions, for type checkers and editors.

Written by ``python -m docs.generators.compile_keywords`` from the fields of ``CompileOptions``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from samba_onnx.compiling.model_options import InputShapes, Sizes
    from samba_onnx.passes.targets import Target
    from samba_onnx.pef.host_summary import HostSummary

__all__ = ["OnnxKeywords", "ProgramKeywords", "TorchKeywords"]
'''


def source() -> str:
    """Return the module."""
    common = [field.name for field in keyword_fields(None)]
    text = HEAD
    for name, base, front, what in (
        ("ProgramKeywords", "TypedDict", None, "programs, whatever made them"),
        ("OnnxKeywords", "ProgramKeywords", Front.ONNX, "an ONNX model"),
        ("TorchKeywords", "ProgramKeywords", Front.TORCH, "a torch module"),
    ):
        text += (
            f'\n\nclass {name}({base}, total=False):\n    """Options of compiling {what}."""\n\n'
        )
        for field in keyword_fields(front):
            if front is None or field.name not in common:
                text += f"    {field.name}: {_given(field.name, str(field.type))}\n"
    return text


def _given(name: str, declared: str) -> str:
    """Return the type that callers may give: names in the place of enumerations, and None for the default."""
    names = {"Level", "Placement", "Float16", "Sharding", "Precision"}
    declared = {"frozenset[Rounding]": "str | Sequence[str] | frozenset[str]"}.get(
        declared, declared
    )
    parts = ["str" if part in names else part for part in declared.split(" | ")]
    return " | ".join(dict.fromkeys([*parts, "None"]))


if __name__ == "__main__":
    PATH.write_text(source())
