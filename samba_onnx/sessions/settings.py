"""The part of a session that is set up: flags, lazy parameters, profiles, exits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pydantic import BaseModel

from samba_onnx.errors import UsageError
from samba_onnx.sessions.exits import register, run_and_exit
from samba_onnx.sessions.lazy_parameters import LAZY
from samba_onnx.sessions.options import flat_options
from samba_onnx.sessions.profiler import Profiler, profiling
from samba_onnx.sessions.random_values import RandomOptions
from samba_onnx.sessions.state import SessionState
from samba_onnx.sessions.transfers import Transfers, expecting
from samba_onnx.tensor import SambaTensor


class Settings(SessionState):
    """How a session works, and what it measures."""

    def setup(self, args: BaseModel) -> None:
        """Set the session up for ``compile``.

        Args:
            args: Settings, such as ``output_folder``, ``pef_name``, ``arch`` and ``o0``; what the
                session does not know is kept.

        Raises:
            UsageError: It is no pydantic model.
        """
        if not isinstance(args, BaseModel):
            raise UsageError(f"setup was given {type(args).__name__}; give a pydantic model")
        self._options = flat_options(args)

    def use_static_functional(self) -> bool:
        """Whether values do not count now: while tracing, and while parameters are lazy."""
        return self._tracing or LAZY.enabled

    def enable_lazy_param(
        self,
        seed: int | None = None,
        init_threads: int = 8,
        inverse_transform_sampling: bool = False,
        fp32_to_bf16_rounding: str = "nearest_even",
    ) -> None:
        """Let modules that are made from now on have parameters without memory.

        How a module initialises its parameters is written down, and carried out when their values
        are needed: one by one at ``trace_graph``, or all that a computation on the host touches.

        Args:
            seed: Of random values, which then depend on nothing else; None takes a seed from
                torch's generator.
            init_threads: Threads that draw random values; they do not change the values.
            inverse_transform_sampling: Make normal values of uniform ones by the inverse of the
                distribution function.
            fp32_to_bf16_rounding: ``nearest_even`` or ``truncation``.

        Raises:
            UsageError: There are no threads, or the rounding does not exist.
        """
        options = RandomOptions(init_threads, inverse_transform_sampling, fp32_to_bf16_rounding)
        options.check()
        LAZY.enable(seed, options)

    @staticmethod
    def disable_lazy_param() -> None:
        """Let modules that are made from now on have parameters with memory."""
        LAZY.disable()

    @staticmethod
    def use_lazy_param() -> bool:
        """Whether modules that are made now have parameters without memory."""
        return LAZY.enabled

    def enable_pinned_memory(self) -> None:
        """Turn pinned memory on; a hint for SambaLoaders."""
        self._pinned = True

    def disable_pinned_memory(self) -> None:
        """Turn pinned memory off."""
        self._pinned = False

    def use_pinned_memory(self) -> bool:
        """Whether pinned memory is on."""
        return self._pinned

    @staticmethod
    def use_legacy_names(use: bool) -> None:
        """Accepted, without effect: names are always those of the module tree.

        Args:
            use: Whether operators are to be named as in old releases.
        """
        del use

    @contextmanager
    def disable_graphamp(self) -> Iterator[None]:
        """Accepted, without effect: types are always those of the model."""
        yield

    @contextmanager
    def _add_directives(self, directives: Mapping[str, Any] | None) -> Iterator[None]:
        """Hints for the compiler on what is traced inside; kept, without effect."""
        before = dict(self._context_directives)
        self._context_directives.update(directives or {})
        try:
            yield
        finally:
            self._context_directives = before

    def add_aux_tensor(self, tensor: SambaTensor, name: str) -> None:
        """Keep a tensor by name, beside those that are traced.

        Args:
            tensor: Any.
            name: Its name.

        Raises:
            UsageError: The name is taken.
        """
        if not self.is_valid_aux_tensor_name(name):
            raise UsageError(f"there is a tensor {name!r} already; give this one another name")
        self._aux_tensors[name] = tensor

    def is_valid_aux_tensor_name(self, name: str) -> bool:
        """Whether ``add_aux_tensor`` may be given a name.

        Args:
            name: Any text.
        """
        traced = any(name in group for group in self.tensor_dict.values())
        return bool(name) and not traced and name not in self._aux_tensors

    def reset_random_generator(self) -> None:
        """Let dropouts draw the masks again that they drew after ``trace_graph``."""
        self._hyperparameters.reset_random()

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
        device = None if self._device is None else self._device.profile
        graphs = () if self._pef is None else [graph.name for graph in self._pef.manifest.graphs]
        self._runtime_profile.end(log_file, device, graphs)

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
