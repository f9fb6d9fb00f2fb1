"""Tries architectures, and writes the page about them.

``python -m tests.architectures [--training] [--results FILE] [name ...]`` tries those that are
named, or all; what FILE has of others stays.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.architectures.catalogue import ARCHITECTURES
from tests.architectures.page import page
from tests.architectures.workers import Worker, WorkError

_PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"
_Answers = dict[tuple[str, str], dict[str, Any]]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.architectures")
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--results", type=Path, help="file of results, read and extended")
    parser.add_argument("--page", type=Path, default=_PAGE)
    parser.add_argument("--skip", choices=["inference", "training", "both"], default="")
    given = parser.parse_args()
    results = _read(given.results)
    for job, name, answer in _tried(given.names or list(ARCHITECTURES), given.skip):
        results[job, name] = answer
        print(job, name, answer, flush=True)
        if given.results:
            with given.results.open("a") as file:
                file.write(json.dumps([job, name, answer]) + "\n")
    given.page.write_text(page(list(ARCHITECTURES.values()), results))


def _read(path: Path | None) -> _Answers:
    if path is None or not path.exists():
        return {}
    lines = map(json.loads, path.read_text().splitlines())
    return {(job, name): answer for job, name, answer in lines}


def _tried(names: list[str], skip: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Do all jobs; yield them with their answers."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with Worker(place) as compiling, Worker(place) as running, Worker(place) as training:
            for name in names:
                if skip not in ("inference", "both"):
                    compiled = _answer(compiling, "compile", name)
                    yield "compile", name, compiled
                    if compiled["passed"]:
                        yield "run", name, _answer(running, "run", name)
                one = ARCHITECTURES[name]
                if skip not in ("training", "both") and not (one.trains or one.limit):
                    yield "train", name, _answer(training, "train", name)


def _answer(worker: Worker, job: str, name: str) -> dict[str, Any]:
    try:
        return worker.do(job, name)
    except WorkError as error:
        return {"failed": str(error), "passed": False}


if __name__ == "__main__":
    main()
