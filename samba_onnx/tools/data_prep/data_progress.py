"""Progress of ``samba-port data-prep``: how much of the text is done, how fast, how much longer."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from samba_onnx.cli.failures import complain

if TYPE_CHECKING:
    from rich.progress import Progress

REFRESH_SECONDS = 0.1


class DataProgress:
    """Shows a bar on a terminal, on standard error; warnings are written wherever that leads."""

    def __init__(self, command: str, quiet: bool = False, silent: bool = False) -> None:
        """Prepare.

        Args:
            command: Its name, for warnings.
            quiet: Show no bar.
            silent: Write no warnings, either.
        """
        self._command = command
        self._silent = silent
        self._wanted = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._articles = self._waiting = 0
        self._begun = self._shown = time.monotonic()

    def __enter__(self) -> Self:
        if self._wanted:
            self._progress = _bar()
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def begin(self, step: str, total: int | None = None) -> None:
        """Show that a step begins."""
        self._articles = self._waiting = 0
        self._begun = time.monotonic()
        if self._progress is not None:
            # A step takes the place of the one before.
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            self._progress.add_task(step, total=total, rate="")

    def advance(self, size: int, articles: int) -> None:
        """Show how much has been done; often called, and cheap."""
        self._waiting += size
        self._articles += articles
        now = time.monotonic()
        if self._progress is None or not self._progress.task_ids:
            return
        if now - self._shown < REFRESH_SECONDS:
            return
        rate = self._articles / max(now - self._begun, 1e-3)
        (task,) = self._progress.task_ids
        self._progress.update(task, advance=self._waiting, rate=f"{rate:,.0f} articles/s")
        self._waiting, self._shown = 0, now

    def warn(self, message: str) -> None:
        """Write a warning."""
        if not self._silent:
            complain(self._command, message)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
    )
