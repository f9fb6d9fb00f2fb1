"""SambaSession: compiles models, and runs them.

The class is what users see: every method with its whole signature and documentation, and nothing
behind it but a call of the part that does the work. Its methods stand in ``calls``, by subject.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from samba_onnx.sessions.calls.compilation import CompilationCalls
from samba_onnx.sessions.calls.measurement import MeasurementCalls
from samba_onnx.sessions.calls.modules import ModuleCalls
from samba_onnx.sessions.calls.programs import ProgramCalls
from samba_onnx.sessions.calls.runs import RunCalls
from samba_onnx.sessions.calls.settings import SettingCalls
from samba_onnx.sessions.calls.tensors import TensorCalls
from samba_onnx.sessions.calls.tracing import TracingCalls
from samba_onnx.sessions.exits import register, run_and_exit
from samba_onnx.sessions.turns import in_turn


class SambaSession(
    SettingCalls,
    CompilationCalls,
    TracingCalls,
    RunCalls,
    TensorCalls,
    ModuleCalls,
    ProgramCalls,
    MeasurementCalls,
):
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

        What ``set_command_line`` was told stays, for it is about the process.

        Args:
            pef_path: PEF to load; empty for none.

        Raises:
            PefError: The PEF cannot be used.
        """
        SESSION._restart(pef_path)

    @in_turn
    def _restart(self, pef_path: str) -> None:
        """Become a new session, in place: programs hold on to ``samba.session``."""
        # While it is still known: __init__ makes a new one, and the old device holds memory.
        self._program.close()
        self._state.clear()
        SambaSession.__init__(self, pef_path)

    def atexit_register(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Register a function that is called when the program ends, with ``use_abexit`` or not.

        Args:
            func: What to call.
            *args: With what.
            **kwargs: With which keywords.
        """
        register(func, *args, **kwargs)

    def use_abexit(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Run a program, and end the process when it returns or raises, whatever else goes on.

        Exit handlers of ``atexit_register`` are called, those of Python's ``atexit`` are not.

        Args:
            func: The program.
            *args: With what.
            **kwargs: With which keywords.
        """
        run_and_exit(func, *args, **kwargs)


SambaSession.SambaSession = SambaSession

SESSION: Final = SambaSession()
"""The session of this process."""
