"""The record of host operators in threads and processes; what it counts is tested with dispatch."""

from __future__ import annotations

import os

import pytest

from samba_onnx.functional import HostOperators
from tests.runtime.test_forks import in_child


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_does_not_wait_for_who_counts_in_the_parent() -> None:
    operators = HostOperators()
    with operators._lock:
        assert in_child(lambda: operators.entries) == "()"
    assert operators.entries == ()
