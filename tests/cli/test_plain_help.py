"""Help in a pipe: panels of options, groups of commands, no types that say nothing."""

from __future__ import annotations

import re

import pytest

from samba_onnx.tools import HelpGroup, find_tools
from tests.cli.conftest import SambaPort


def test_commands_stand_in_groups_each_once(samba_port: SambaPort) -> None:
    text = samba_port("--help").out
    headings = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert headings[-len(HelpGroup) :] == [group.value for group in HelpGroup]
    for tool in find_tools().values():
        (heading,) = re.findall(
            rf"^(\S[^\n]*):\n(?:  [^\n]*\n)*?  {re.escape(tool.name)}  ", text, re.MULTILINE
        )
        assert heading == tool.group.value


@pytest.mark.parametrize("name", find_tools())
def test_panels_are_written_and_types_of_flags_are_not(samba_port: SambaPort, name: str) -> None:
    text = samba_port(name, "--help").out
    assert not re.search(r"<(bool|str|list\[str\])>", text)


def test_analyze_has_its_options_by_panel(samba_port: SambaPort) -> None:
    text = samba_port("analyze", "--help").out
    headings = re.findall(r"^(\S[^:\n]*)(?:: .*)?:$", text, re.MULTILINE)
    assert headings[:2] == ["Arguments", "Options"]
    assert {"Shapes", "Sections", "Limits", "Output"} <= set(headings)
    assert len(headings) == len(set(headings))
