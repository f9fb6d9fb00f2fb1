"""Every rule finds its example, and nothing in the better one."""

from __future__ import annotations

import pytest

from samba_onnx.tools.lint.findings import Severity
from samba_onnx.tools.lint.linter import lint_files
from samba_onnx.tools.lint.rule_table import RULES
from samba_onnx.tools.lint.source import SourceFile


def found(text: str, target: str = "sn40l") -> list[str]:
    """Return the ids of what is found in a program of one file."""
    source = SourceFile("program.py", text.encode())
    return [finding.rule for finding in lint_files([source], target)]


@pytest.mark.parametrize("name", RULES)
def test_the_example_of_a_rule_is_found_by_it_alone(name: str) -> None:
    rule = RULES[name]
    assert found(rule.example, rule.target or "sn40l") == [name]


@pytest.mark.parametrize("name", RULES)
def test_what_to_write_instead_is_not_found(name: str) -> None:
    rule = RULES[name]
    assert found(rule.better, rule.target or "sn40l") == []


@pytest.mark.parametrize("name", RULES)
def test_a_comment_leaves_a_rule_out(name: str) -> None:
    rule = RULES[name]
    for comment in (f"ignore[{name}]", f"ignore[other, {name}]", "ignore"):
        text = "".join(f"{line}  # samba-port: {comment}\n" for line in rule.example.splitlines())
        assert found(text, rule.target or "sn40l") == []
    text = "".join(f"{line}  # samba-port: ignore[other]\n" for line in rule.example.splitlines())
    assert found(text, rule.target or "sn40l") == [name]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_why_and_what_to_write_in_sentences(name: str) -> None:
    rule = RULES[name]
    assert rule.id == rule.id.lower().replace("_", "-").replace(" ", "-")
    assert rule.why.endswith(".")
    assert rule.instead.endswith(".")
    assert rule.source
    assert not rule.title.endswith(".")


def test_rules_of_one_target_are_silent_for_others() -> None:
    rule = RULES["odd-batch"]
    assert found(rule.example, "sn40l") == []


def test_severities_are_in_order() -> None:
    assert [severity.rank for severity in Severity] == [0, 1, 2]
    assert max(Severity, key=lambda severity: severity.rank) is Severity.NOTE
