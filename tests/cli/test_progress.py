"""The display of what goes on."""

from __future__ import annotations

import io

from rich.console import Console
from rich.progress import Progress

from samba_onnx.cli.progress import columns


def shown(completed: float, total: float | None) -> str:
    """What the display shows of a step after ten seconds, one report of progress a second."""
    clock = iter(range(1000))
    now = 0.0

    def seconds() -> float:
        return now

    display = Progress(*columns(), get_time=seconds)
    task = display.add_task("run", total=total)
    for number in range(11):
        now = float(next(clock))
        display.update(task, completed=completed * number / 10)
    console = Console(file=io.StringIO(), width=100)
    console.print(display.get_renderable())
    text = console.file
    assert isinstance(text, io.StringIO)
    return text.getvalue().rstrip()


def test_what_is_left_is_shown_where_it_is_known() -> None:
    assert shown(50, 100).endswith("0:00:10 elapsed 0:00:10 left")


def test_nothing_is_shown_of_what_nobody_knows() -> None:
    assert shown(0, None).endswith("0:00:10 elapsed")
    assert shown(0, 100).endswith("0:00:10 elapsed")
