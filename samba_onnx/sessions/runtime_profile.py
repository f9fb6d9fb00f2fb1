"""A profile of one stretch of a program: Python's functions, and the device's calls."""

from __future__ import annotations

import cProfile
import io
import logging
import os
import pstats
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from samba_onnx.runtime.profile import CallTime, Profile
from samba_onnx.safety.files import atomic_output

LOGGER: Final = logging.getLogger(__name__)

VARIABLE: Final = "ENABLE_RUNTIME_PERF"
"""Environment variable that turns profiling on."""
_LEVELS: Final = ("SUMMARY", "DETAILED")
_FUNCTIONS = 50
"""Python functions that are listed, those that took longest first."""


def level() -> str:
    """Return ``SUMMARY``, ``DETAILED``, or nothing when the environment asks for neither."""
    value = os.environ.get(VARIABLE, "").upper()
    return value if value in _LEVELS else ""


class RuntimeProfile:
    """Profiles what happens between its start and its end."""

    def __init__(self, measured: Callable[[], tuple[Profile | None, Iterable[str]]]) -> None:
        """Begin without a profile.

        Args:
            measured: Returns what the device measured by then, if there is one, and the names of its graphs.
        """
        self._measured = measured
        self._profile: cProfile.Profile | None = None
        self._begin: float | None = None

    def start_runtime_profile(self, timer_enabled: bool = True) -> None:
        """Begin to profile Python and the device, if ``ENABLE_RUNTIME_PERF`` is set.

        Set it to SUMMARY, or to DETAILED before ``trace_graph`` for the time of every section.

        Args:
            timer_enabled: Measure the wall time, too.
        """
        # A second start would lose what the first one has measured.
        if not level() or self._profile is not None:
            return
        self._begin = time.perf_counter() if timer_enabled else None
        self._profile = cProfile.Profile()
        self._profile.enable()

    def end_runtime_profile(self, log_file: str = "cprofile_tmp.log") -> None:
        """Stop profiling, and write what was measured; without a profile nothing happens.

        Args:
            log_file: The text to write.

        Raises:
            OutputError: It cannot be written.
        """
        if self._profile is None:
            return
        # Forgotten before anything is written: a file that cannot be written ends it, too.
        profile, self._profile = self._profile, None
        profile.disable()
        lines = []
        if self._begin is not None:
            seconds = time.perf_counter() - self._begin
            lines.append(f"wall time {seconds:.6f} s")
            LOGGER.info("%s", lines[0])
        device, graphs = self._measured()
        lines += [] if device is None else _device_lines(device, graphs)
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats("cumulative").print_stats(_FUNCTIONS)
        with atomic_output(Path(log_file)) as file:
            file.write("\n".join([*lines, text.getvalue()]).encode())


def _device_lines(profile: Profile, graphs: Iterable[str]) -> list[str]:
    return [
        f"graph {graph}  call {time.call}  {time.name}  {time.executions} executions  "
        f"{time.measured_seconds:.6f} s  measured on this CPU: min {time.fastest_seconds:.6f} s, "
        f"median {time.median_seconds:.6f} s  {_modelled(time)}"
        for graph in graphs
        for time in profile.calls(graph)
    ]


def _modelled(time: CallTime) -> str:
    """Say what the call is modelled to take on the RDU, which a fallback does not run on."""
    if time.modelled_seconds is None:
        return "runs on the host"
    return f"modelled on the RDU: {time.modelled_seconds:.9f} s"
