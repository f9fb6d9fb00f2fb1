"""What the rules about traced functions say is what the compiler does with their examples."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import samba_onnx as samba
from samba_onnx.errors import BranchWarning, SambaError
from samba_onnx.tools.lint.findings import Severity
from samba_onnx.tools.lint.forward_rules import FORWARD_RULES
from samba_onnx.tools.lint.rule_table import RULES

ERRORS = [rule.id for rule in FORWARD_RULES if rule.severity is Severity.ERROR]


@pytest.fixture(autouse=True)
def _fresh_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("torch")
    yield
    samba.session.reset()


def compiled(text: str) -> str:
    """Compile the module of an example for inference; return what was wrong with it, if anything."""
    scope: dict[str, Any] = {"__name__": "example"}
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            exec(text, scope)
            model = scope["Net"]().eval()
            samba.from_torch_model_(model)
            names = list(scope["Net"].forward.__code__.co_varnames[1:])
            wanted = scope["Net"].forward.__code__.co_argcount - 1
            inputs = tuple(samba.randn(4, 4, name=name) for name in names[:wanted])
            samba.session.compile(model, inputs)
    except SambaError as error:
        return str(error)
    return " ".join(str(item.message) for item in heard if item.category is BranchWarning)


@pytest.mark.parametrize("name", ERRORS)
def test_an_example_of_an_error_is_refused_or_warned_of(name: str) -> None:
    assert compiled(RULES[name].example)


@pytest.mark.parametrize("name", ERRORS)
def test_what_to_write_instead_compiles_without_a_warning(name: str) -> None:
    assert compiled(RULES[name].better) == ""
