"""A spinner for what takes longer than a second, on a terminal, on standard error."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

DELAY_SECONDS = 1.0
REFRESH_SECONDS = 0.1


class Activity:
    """Shows what goes on, once it has gone on for ``DELAY_SECONDS``.

    Nothing is shown, or imported for showing, when standard error is no terminal.
    """

    def __init__(self, quiet: bool = False) -> None:
        """Prepare.

        Args:
            quiet: Show nothing.
        """
        self._wanted = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._lock = threading.Lock()
        self._step = "start"
        self._done: float | None = None
        self._total: float | None = None
        self._shown = 0.0
        self._progress: Progress | None = None
        self._timer = threading.Timer(DELAY_SECONDS, self._begin)
        # A command that ends does not wait for it.
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._wanted:
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            # The timer's thread may be about to begin, and looks at this under the lock.
            self._wanted = False
            if self._progress is not None:
                self._progress.stop()

    def step(self, name: str) -> None:
        """Say which step begins."""
        self._tell(name, None, None)

    def count(self, done: float, total: float) -> None:
        """Say how much of the current step is done."""
        self._tell(self._step, done, total)

    def _tell(self, name: str, done: float | None, total: float | None) -> None:
        news = name != self._step
        self._step, self._done, self._total = name, done, total
        if self._progress is None:
            return
        now = time.monotonic()
        if news or now - self._shown > REFRESH_SECONDS:
            self._shown = now
            with self._lock:
                self._refresh()

    def _refresh(self) -> None:
        if self._progress is None:
            return
        for task in self._progress.task_ids:
            self._progress.update(
                task, description=self._step, completed=self._done or 0, total=self._total
            )

    def _begin(self) -> None:
        """Start the display; runs in the timer's thread."""
        from rich.console import Console
        from rich.progress import Progress

        with self._lock, contextlib.suppress(OSError):
            if not self._wanted:
                return
            self._progress = Progress(*columns(), console=Console(stderr=True), transient=True)
            self._progress.add_task(self._step, total=None)
            self._refresh()
            self._progress.start()


def columns() -> tuple[ProgressColumn, ...]:
    """Return what the display shows: the step, the time that it took, and what is left where that is known."""
    from rich.progress import (
        BarColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Left(TimeRemainingColumn):
        """The time that is left, and nothing as long as nobody knows it."""

        def render(self, task: Task) -> Text:
            if task.total is None or task.time_remaining is None:
                return Text("")
            return Text.assemble(super().render(task), " left")

    return (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("elapsed"),
        Left(),
    )
