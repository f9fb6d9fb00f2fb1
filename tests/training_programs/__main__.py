"""The command ``python -m tests.training_programs``: train programs on both machines; write table and page."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from docs.generators.training_programs import PAGE, page
from tests.training_programs.catalogue import CATALOGUE
from tests.training_programs.outcome import Outcome, measure
from tests.training_programs.table import difference, read, write


def main() -> int:
    """Measure, print what changed, and write the table, unless numbers became other than torch's."""
    parser = argparse.ArgumentParser(prog="python -m tests.training_programs", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of programs; all of them if none")
    parser.add_argument("--accept-worse", action="store_true", help="write what is worse, too")
    options = parser.parse_args()
    table = read()
    chosen = [n for n in CATALOGUE if not options.names or any(p in n for p in options.names)]
    measured = {name: _measured(name, table.get(name)) for name in chosen}
    worse = [n for n, o in measured.items() if n in table and o.rank < table[n].rank]
    if worse and not options.accept_worse:
        print(f"worse, so nothing is written (--accept-worse): {', '.join(worse)}", file=sys.stderr)
        return 1
    table = {name: row for name, row in (table | measured).items() if name in CATALOGUE}
    write(table)
    PAGE.write_text(page(table))
    return 0


def _measured(name: str, expected: Outcome | None) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        outcome = measure(CATALOGUE[name], Path(folder))
    print(f"{name}: {difference(outcome, expected) or 'as in the table'}", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
