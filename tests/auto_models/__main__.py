"""The command ``python -m tests.auto_models``: convert and verify models; write table and page."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from docs.generators.auto_models import PAGE, page
from tests.auto_models.catalogue import REPRESENTATIVES
from tests.auto_models.outcome import Outcome, measure
from tests.auto_models.table import difference, read, write


def main() -> int:
    """Measure, print what changed, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.auto_models", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of models; all of them if none")
    options = parser.parse_args()
    table = read()
    for name in REPRESENTATIVES:
        if not options.names or any(part in name for part in options.names):
            table[name] = _measured(name, table.get(name))
    table = {name: row for name, row in table.items() if name in REPRESENTATIVES}
    write(table)
    PAGE.write_text(page(table))
    return 0


def _measured(name: str, expected: Outcome | None) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        outcome = measure(REPRESENTATIVES[name], Path(folder))
    print(f"{name}: {difference(outcome, expected) or 'as in the table'}", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
