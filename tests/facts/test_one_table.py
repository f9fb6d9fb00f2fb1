"""Facts stand in the room of facts: elsewhere, no list of operators, ending, domain or text form."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import samba_onnx
import samba_onnx.passes
import samba_onnx.runtime
from samba_onnx.facts.operators import FACTS

ROOT, PASSES, RUNTIME = (
    Path(str(package.__file__)).parent
    for package in (samba_onnx, samba_onnx.passes, samba_onnx.runtime)
)
LONGEST = 6
"""Names in a list that is one rule's own; a longer one says what operators are."""
_OWN_LISTS = {
    "passes/rewrites/opset_adapters.py",  # what versions of ONNX changed
    "runtime/engine/onnxruntime/float64_sums.py",  # what onnxruntime adds in float64, too
    "runtime/engine/lowerings/function_bodies.py",  # what onnxruntime has no kernels for
    "export/operators/promotion.py",  # what the RDU's table has for int16
}


_WORDS = {name.rpartition(".")[2].rpartition("::")[2] for name in FACTS}


def sources() -> Iterator[tuple[str, str]]:
    # By import name: rglob follows no links, and passes and runtime may be such.
    for folder, room in ((ROOT, ""), (PASSES, "passes/"), (RUNTIME, "runtime/")):
        for path in sorted(folder.rglob("*.py")):
            place = f"{room}{path.relative_to(folder).as_posix()}"
            if not place.startswith("facts/"):
                yield place, path.read_text(encoding="utf-8")


SOURCES = dict(sources())


def operator_lists(text: str) -> Iterator[list[str]]:
    """Yield the operators of every list, set and tuple that holds nothing but constants."""
    if sum(word in _WORDS for word in re.findall(r"\w+", text)) <= LONGEST:
        return  # too few operators for a list that is too long: its tree need not be read
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Set | ast.List | ast.Tuple):
            items = [item.value for item in node.elts if isinstance(item, ast.Constant)]
            if len(items) == len(node.elts):
                yield [str(item) for item in items if item in FACTS]


def test_the_rooms_are_all_read() -> None:
    rooms = {place.split("/")[0] for place in SOURCES}
    assert {"passes", "runtime", "export", "importing", "safety", "sessions"} <= rooms


@pytest.mark.parametrize("place", sorted(SOURCES.keys() - _OWN_LISTS))
def test_no_other_file_lists_what_operators_are(place: str) -> None:
    longest = max(operator_lists(SOURCES[place]), key=len, default=[])
    assert len(longest) <= LONGEST, f"{place}: {longest}"


@pytest.mark.parametrize(
    ("pattern", "home"),
    [
        (r'"__(grad|updated|zeroed|before|rate|seed)"|\}__(grad|updated|zeroed)\b', "names"),
        (r'[{(]"", "ai\.onnx"[})]', "domains"),
        (r'"com\.microsoft', "domains"),
        (r"\b[A-Z_]*(OPSET|IR_VERSION|_IR)(: Final)? = \d", "versions"),
        (r"onnxruntime (1\.\d+ )?accepts", "versions"),
        (r'f"tensor\(\{', "dtypes"),
        (r"\b(RTOL|ATOL|TOLERANCES?)(: Final)? = ", "tolerances"),
        (r"while .* in taken:\n +number \+= 1", "names"),
    ],
)
def test_what_has_a_home_is_stated_nowhere_else(pattern: str, home: str) -> None:
    assert (ROOT / "facts" / f"{home}.py").exists()
    found = [place for place, text in SOURCES.items() if re.search(pattern, text)]
    assert not found, f"use samba_onnx.facts.{home}"
