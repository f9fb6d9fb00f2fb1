"""The page on migration is made of the layer, and says of all that has no effect that it has none."""

from __future__ import annotations

import re

from docs.generators.migration import PAGE, migration_page
from samba_onnx.facts.sambaflow_names import MISSING
from samba_onnx.sessions.arguments import ARGUMENTS


def test_the_page_is_that_of_the_layer() -> None:
    refresh = "python -m docs.generators.migration"
    assert PAGE.read_text() == migration_page(), f"refresh it: {refresh}"


def test_every_name_is_in_one_table() -> None:
    page = migration_page()
    here, idle, functions, gone = re.split(r"^### .*$", page, flags=re.MULTILINE)[1:]
    assert all(f"| `{name}` |" in gone for name in MISSING)
    assert all(
        (f"`{argument.options[-1]}`" in idle) == bool(argument.hint or argument.idle)
        for argument in ARGUMENTS
    )
    hints = ("sambaflow.samba.directives.sdpa_directives", "samba.session.enable_pinned_memory")
    assert all(f"`{name}` | the whole call" in functions for name in hints)
    assert "| `sambaflow.samba.argconf.args` | `CommonArgs`, `CompileArgs`, `RunArgs` |" in here
    assert "create_mac_resource_report" not in here
