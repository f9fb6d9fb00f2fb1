"""What runs copy, and how long they take."""

from __future__ import annotations

from contextlib import AbstractContextManager

from samba_onnx.sessions.calls.parts import SessionParts
from samba_onnx.sessions.profiler import Profiler, profiling
from samba_onnx.sessions.transfers import Transfers, expecting

__all__ = ["MeasurementCalls"]


class MeasurementCalls(SessionParts):
    """Calls that count and measure."""

    def expect_transfers(
        self, max_bytes: int | None = None, max_count: int | None = None
    ) -> AbstractContextManager[Transfers]:
        """Allow what runs in a ``with`` block only so many copies between host and device.

        Args:
            max_bytes: Most bytes that may be copied, both ways together; any when None.
            max_count: Most copies that may be made; any when None.

        Returns:
            A context manager, which raises TransferLimitError with a table of the copies.

        Raises:
            UsageError: No limit is given, or a negative one; when the block is entered.
        """
        return expecting(self.transfers, max_bytes, max_count)

    @property
    def profiler(self) -> Profiler:
        """What measures events on the host; see ``samba_profile``."""
        return self._profiler

    def samba_profile(self, filename: str | None = None) -> AbstractContextManager[Profiler]:
        """Measure how long the session's steps take in a ``with`` block.

        Events are SAMBA_SET_PEF, SAMBA_INIT_RUNTIME, SAMBA_SESSION_RUN (with the section types
        behind it), PyRT_RUN, PyRT_GET_TENSORS and PyRT_SET_TENSORS.

        Args:
            filename: A trace to write, which chrome://tracing and Perfetto show.

        Returns:
            A context manager with the profiler.

        Raises:
            OutputError: The trace cannot be written; when the block is left.
        """
        return profiling(self._profiler, filename)

    def start_samba_profile(self) -> None:
        """Begin to measure; see ``samba_profile``."""
        self._profiler.start_profile()

    def end_samba_profile(self, filename: str | None = None) -> None:
        """Stop measuring.

        Args:
            filename: A trace to write; see ``samba_profile``.

        Raises:
            OutputError: It cannot be written.
        """
        self._profiler.stop_profile()
        if filename is not None:
            self._profiler.save(filename)

    def start_runtime_profile(self, timer_enabled: bool = True) -> None:
        """Begin to profile Python and the device, if ``ENABLE_RUNTIME_PERF`` is set.

        Set it to SUMMARY, or to DETAILED before ``trace_graph`` for the time of every section.

        Args:
            timer_enabled: Measure the wall time, too.
        """
        self._runtime_profile.start(timer_enabled)

    def end_runtime_profile(self, log_file: str = "cprofile_tmp.log") -> None:
        """Stop profiling, and write what was measured; without a profile nothing happens.

        Args:
            log_file: The text to write.

        Raises:
            OutputError: It cannot be written.
        """
        self._runtime_profile.end(log_file, *self._program.profile())
