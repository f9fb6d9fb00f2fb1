"""SambaSession: compiles models, and runs them."""

from __future__ import annotations

from typing import Final

from samba_onnx.sessions.compiling import Compiling
from samba_onnx.sessions.onnx_writing import OnnxWriting
from samba_onnx.sessions.running import Running
from samba_onnx.sessions.settings import Settings
from samba_onnx.sessions.tracing import Tracing


class SambaSession(Compiling, Tracing, Running, OnnxWriting, Settings):
    """Compiles models into PEFs and runs them on the emulated device.

    Compile once, with ``compile``. To run, possibly in another process, call
    ``samba.utils.trace_graph`` once, which loads the PEF, checks that it was compiled from this
    model, and sends parameters and inputs to the device; then ``run`` as often as wanted.

    Most programs use the one session that there is, ``samba.session``. All sessions of a process
    share one device.
    """

    SambaSession: type[SambaSession]
    """This class, for programs that take ``samba.session`` for its module."""

    @staticmethod
    def reset(pef_path: str = "") -> None:
        """Let ``samba.session`` begin anew: without program, traced tensors and settings.

        Args:
            pef_path: PEF to load; empty for none.

        Raises:
            PefError: The PEF cannot be used.
        """
        SESSION._restart(pef_path)


SambaSession.SambaSession = SambaSession

SESSION: Final = SambaSession()
"""The session of this process."""
