"""The command ``python -m tests.wild``: measure subjects; write table and page, unless one gets worse."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from docs.generators.wild import PAGE, page
from tests.wild.catalogue import SUBJECTS
from tests.wild.distributions import UnreachableError
from tests.wild.outcome import Outcome, measure
from tests.wild.table import difference, is_worse, read, summary, write


def main() -> int:
    """Measure, print what changed, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.wild", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of subjects; all of them if none")
    parser.add_argument("--accept-worse", action="store_true", help="write what is worse, too")
    parser.add_argument("--summary", action="store_true", help="only print the table's summary")
    options = parser.parse_args()
    table = read()
    if options.summary:
        print(summary(table), end="")
        return 0
    measured = {
        name: outcome
        for name in SUBJECTS
        if not options.names or any(part in name for part in options.names)
        if (outcome := _measured(name, table.get(name))) is not None
    }
    worse = [name for name, outcome in measured.items() if is_worse(outcome, table.get(name))]
    if worse and not options.accept_worse:
        print(f"worse, so nothing is written (--accept-worse): {', '.join(worse)}", file=sys.stderr)
        return 1
    table = {name: row for name, row in (table | measured).items() if name in SUBJECTS}
    write(table)
    PAGE.write_text(page(table))
    return 0


def _measured(name: str, expected: Outcome | None) -> Outcome | None:
    """Measure one subject; None where its package cannot be fetched, so that its row stays as it is."""
    start = time.process_time()
    try:
        with tempfile.TemporaryDirectory() as folder:
            outcome = measure(SUBJECTS[name], Path(folder))
    except UnreachableError as error:
        print(f"{name}: not measured: {error}", file=sys.stderr)
        return None
    seconds = time.process_time() - start
    print(
        f"{name}: {difference(outcome, expected) or 'as in the table'} ({seconds:.1f} s)",
        flush=True,
    )
    return outcome


if __name__ == "__main__":
    sys.exit(main())
