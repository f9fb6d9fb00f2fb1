"""The command ``python -m tests.generation``: generate with families; write table and page."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from docs.generators.generation import PAGE, page
from tests.generation.families import FAMILIES
from tests.generation.outcome import measure
from tests.generation.table import difference, read, write


def main() -> int:
    """Measure, print what changed, and write the table after each family."""
    parser = argparse.ArgumentParser(prog="python -m tests.generation", description=__doc__)
    parser.add_argument("names", nargs="*", help="families; all of them if none")
    options = parser.parse_args()
    table = {name: row for name, row in read().items() if name in FAMILIES}
    for name in options.names or FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            outcome = measure(name, Path(folder))
        print(f"{name}: {difference(outcome, table.get(name)) or 'as in the table'}", flush=True)
        table[name] = outcome
        write(table)
    PAGE.write_text(page(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
