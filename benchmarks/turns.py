"""Two sides of a comparison, each in a process of its own, that take turns.

Two spinning thread pools in one process would starve each other. A side is a program that prepares
something and then calls :func:`serve`; :class:`Side` starts it and asks it for steps.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

_REST = 0.05
"""Seconds before a turn: threads of the other side that still spin have gone to sleep."""
_STARTS = 4
"""How often both sides are started whose times differ by little; an even number, for each to be first as often."""


def serve(prepare: Callable[[], Callable[[], object]]) -> None:
    """Prepare, then make as many steps as each line of standard input says.

    Prints wall and CPU seconds: of preparing and the first step, then of what each line asked for.
    The line ``peak`` is answered with the peak of the process's resident memory, in bytes.

    Args:
        prepare: Returns a step.
    """
    begin = _clocks()
    step = prepare()
    step()
    _report(begin)
    for line in sys.stdin:
        if line.strip() == "peak":
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)
            continue
        begin = _clocks()
        for _ in range(int(line)):
            step()
        _report(begin)


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _report(begin: tuple[float, float]) -> None:
    wall, processor = _clocks()
    print(wall - begin[0], processor - begin[1], flush=True)


class Side:
    """One side, waiting for its turn."""

    def __init__(self, arguments: Sequence[str], *, processor_time: bool = False) -> None:
        """Start a side, and wait until it has made one step.

        Args:
            arguments: Of the Python interpreter.
            processor_time: Whether CPU time is what counts, which other work on the machine hardly
                disturbs; for sides of one thread.

        Raises:
            RuntimeError: It died.
        """
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed on exit
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._clock = 1 if processor_time else 0
        self.preparation = self._answer()[self._clock]
        """Seconds of preparing and the first step."""

    def time(self, steps: int) -> float:
        """Return the seconds that some steps take."""
        time.sleep(_REST)
        return self._ask(str(steps))[self._clock]

    def peak(self) -> float:
        """Return the peak of resident memory so far, in bytes."""
        return self._ask("peak")[0]

    def _ask(self, line: str) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(f"a side died with {status}: {self._errors.read().strip()[-300:]}")
        return [float(number) for number in line.split()]

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()


def ratio(ours: Side, theirs: Side, turns: int, turn_seconds: float = 0.4) -> tuple[float, float]:
    """Let two sides take turns.

    Args:
        ours: Whose time is divided.
        theirs: By whose it is divided.
        turns: Of each side.
        turn_seconds: About how long a turn takes.

    Returns:
        The median of the ratios turn by turn, and the median seconds of one of their steps.
    """
    ratios, seconds = turn_ratios(ours, theirs, turns, turn_seconds)
    return statistics.median(ratios), seconds


def turn_ratios(
    ours: Side, theirs: Side, turns: int, turn_seconds: float = 0.4
) -> tuple[list[float], float]:
    """Let two sides take turns; who begins alternates, for the second finds the machine warmer.

    Args:
        ours: Whose time is divided.
        theirs: By whose it is divided.
        turns: Of each side.
        turn_seconds: About how long a turn takes.

    Returns:
        The ratio of each turn, and the median seconds of one of their steps.
    """
    ours.time(2)
    steps = max(1, round(turn_seconds / (theirs.time(2) / 2)))
    pairs = []
    for turn in range(turns):
        if turn % 2:
            their, our = theirs.time(steps), ours.time(steps)
        else:
            our, their = ours.time(steps), theirs.time(steps)
        pairs.append((our, their))
    seconds = statistics.median(their for _, their in pairs) / steps
    return [our / their for our, their in pairs], seconds


def restarted_ratios(
    ours: Callable[[], Side], theirs: Callable[[], Side], turns: int, turn_seconds: float = 1.0
) -> list[float]:
    """Let two sides take turns that differ by so little that it matters which has run for longer.

    Args:
        ours: Starts the side whose time is divided.
        theirs: Starts the side by whose time it is divided.
        turns: Of each side, altogether.
        turn_seconds: About how long a turn takes.

    Returns:
        The ratio of each turn. Both sides are started anew several times, by turns the one or the
        other first.
    """
    ratios: list[float] = []
    for start in range(_STARTS):
        first, second = (ours, theirs) if start % 2 else (theirs, ours)
        with first() as one, second() as other:
            our, their = (one, other) if start % 2 else (other, one)
            ratios += turn_ratios(our, their, -(-turns // _STARTS), turn_seconds)[0]
    return ratios
