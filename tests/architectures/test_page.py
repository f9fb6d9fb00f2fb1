"""The page in docs is about the architectures that are in the catalogue."""

from __future__ import annotations

import re

from docs.generators.architectures import PAGE, page
from tests.architectures.catalogue import ARCHITECTURES


def test_the_page_lists_architectures_of_the_catalogue() -> None:
    listed = re.findall(r"^\| (\S+) \|", PAGE.read_text(), re.MULTILINE)
    tried = set(listed) - {"architecture", "---"}
    assert tried <= set(ARCHITECTURES)
    assert len(tried) >= 100


def test_every_row_that_does_not_pass_has_a_reason_below() -> None:
    text = PAGE.read_text()
    rows = re.findall(r"^\| (\S+) \|.*\| (.+) \|$", text, re.MULTILINE)
    failing = {name for name, result in rows if result not in ("pass", "---", "result")}
    assert failing == set(re.findall(r"^- \*\*(\S+)\*\*, .*\w", text, re.MULTILINE))


def test_errors_are_quoted() -> None:
    one = ARCHITECTURES["bert"]
    results = {
        ("compile", "bert"): {"failed": "ModelError: no `such` thing\nmore", "passed": False}
    }
    text = page([one], results)
    assert "0 of 1 pass" in text
    assert "- **bert**, inference: `ModelError: no 'such' thing`" in text
