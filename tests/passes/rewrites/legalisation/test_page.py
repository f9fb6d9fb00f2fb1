"""The page of rules says what the rules say."""

from __future__ import annotations

from docs.generators.legalisation import PAGE, legalisation_page
from samba_onnx.passes.rewrites.legalisation import all_rules
from tests.versions import needs


@needs("onnx", "1.23")  # older ones have functions for fewer operators
def test_the_page_is_the_one_that_the_rules_make() -> None:
    assert PAGE.read_text() == legalisation_page(), "run: python -m docs.generators.legalisation"


def test_no_operator_has_two_rules() -> None:
    operators = [operator for rule in all_rules() for operator in rule.operators]
    assert len(set(operators)) == len(operators)
