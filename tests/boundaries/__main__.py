"""The command ``python -m tests.boundaries``: count once more what runs pass; write table and page."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from docs.generators.boundaries import PAGE, page
from tests.boundaries.counting import count
from tests.boundaries.subjects import SUBJECTS
from tests.boundaries.table import Row, difference, read, write


def main() -> int:
    """Count, print what changed, and write the table, unless an architecture has more boundaries."""
    parser = argparse.ArgumentParser(prog="python -m tests.boundaries", description=__doc__)
    parser.add_argument("names", nargs="*", help="architectures; all of them if none")
    parser.add_argument("--accept-worse", action="store_true", help="write what is worse, too")
    options = parser.parse_args()
    table = read()
    counted = {name: _counted(name, table[name]) for name in options.names or SUBJECTS}
    worse = [name for name, row in counted.items() if difference(row.after, table[name])]
    if worse and not options.accept_worse:
        print(f"worse, so nothing is written (--accept-worse): {', '.join(worse)}", file=sys.stderr)
        return 1
    table |= counted
    write(table)
    PAGE.write_text(page(table))
    return 0


def _counted(name: str, row: Row) -> Row:
    after = count(name)
    if after == row.after:
        changes = "as in the table"
    else:
        changes = difference(after, row) or f"{after} in the place of {row.after}"
    print(f"{name}: {changes}", flush=True)
    return dataclasses.replace(row, after=after)


if __name__ == "__main__":
    sys.exit(main())
