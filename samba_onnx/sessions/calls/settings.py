"""What a session compiles by besides the arguments of a call, and hints that PEFs list."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from samba_onnx.export.capture.precision import native_precision
from samba_onnx.facts.roundings import roundings_of
from samba_onnx.sessions.arguments import tell_idle
from samba_onnx.sessions.calls.parts import SessionParts
from samba_onnx.sessions.dynamic_dims import DimInfo, declare, declare_file
from samba_onnx.sessions.options import SessionOptions, flat_options

__all__ = ["SettingCalls"]


class SettingCalls(SessionParts):
    """Calls that say how to compile what comes next."""

    def setup(self, args: BaseModel) -> None:
        """Set the session up for ``compile``.

        Args:
            args: Settings, such as ``output_folder``, ``pef_name``, ``arch`` and ``o0``; what the
                session does not know is kept.

        Raises:
            UsageError: It is no pydantic model.
        """
        self._options.set_up(args)

    def set_command_line(self, settings: Mapping[str, Any] | Namespace) -> None:
        """Take what the program was started with; SambaFlow's ``parse_app_args`` calls it.

        Programs parse a PEF's name and folder, and do not always hand them on: ``compile`` takes
        them from here when neither ``config_dict`` nor ``setup`` has them. So does ``trace_graph``
        with the path of the PEF, and with ``inference``, which leaves optimizers out where the PEF
        was compiled for inference.

        Args:
            settings: In the place of those before; empty to forget them.

        Raises:
            UsageError: They are no settings.
        """
        SessionOptions.command_line = flat_options(settings)

    def use_pinned_memory(self) -> bool:
        """Whether pinned memory is on."""
        return self._options.pinned_memory

    def enable_pinned_memory(self) -> None:
        """Turn pinned memory on; a hint for SambaLoaders."""
        self._options.pinned_memory = True

    def disable_pinned_memory(self) -> None:
        """Turn pinned memory off."""
        self._options.pinned_memory = False

    @staticmethod
    def use_legacy_names(use: bool) -> None:
        """Ask for other names: they are always those of the module tree, which is said if need be.

        Args:
            use: Whether operators are to be named as in old releases.
        """
        if use:
            tell_idle("use_legacy_names")

    def disable_graphamp(self) -> AbstractContextManager[None]:
        """Compute in the model's own types inside, in the ``forward`` of a module that is compiled in others."""
        return native_precision()

    def _add_directives(self, directives: Mapping[str, Any] | None) -> AbstractContextManager[None]:
        """Hints for the compiler on what is traced inside, without effect; the PEF lists them."""
        return self._options.directives(directives)

    @property
    def _context_directives(self) -> Mapping[str, Any]:
        """The hints on what is traced now, by name."""
        return MappingProxyType(self._options.current_directives)

    def record_hint(self, name: str, value: Any = True) -> None:
        """Let the PEF that is compiled next list a hint to SambaFlow's compiler.

        Hints have no effect on what is computed; ``samba-port inspect`` shows them.

        Args:
            name: What the hint is about.
            value: What it says; what JSON does not have is kept as its text.
        """
        self._options.record_hint(name, value)

    def switch_rounding(self, rounding: str, on: bool = True) -> None:
        """Let the program that is compiled next round values to bfloat16 at random, or to nearest.

        Args:
            rounding: ``steps``, ``gradients``, ``convolution-gradients`` or ``bias-gradients``, as
                ``stochastic_rounding`` of ``compile`` takes them.
            on: Whether at random; False counts more than what settings and ``compile`` ask for.

        Raises:
            UsageError: The name is unknown.
        """
        (one,) = roundings_of((rounding,))
        self._options.switch_rounding(one, on)

    def create_dynamic_dim(self, name: str, min: int, max: int, factor: int = 1) -> str:
        """Declare a dimension whose size may vary between runs.

        A program is compiled for the sizes of its inputs, here: it takes inputs of those sizes, and
        ``run`` refuses others. Declare what programs read, compile for the largest size and pad, or
        compile a PEF or a graph for every size. The PEF that is compiled next lists the dimension.

        SambaNova has not published the arguments; they are those of which its programs compose the
        names in ``dynamic_dims``.

        Args:
            name: What the dimension is, as ``batch_size``.
            min: Least size, at least 1.
            max: Largest size.
            factor: What every size is a multiple of.

        Returns:
            The name by which ``dynamic_dims`` has it, as ``batch_size_min_1_max_16_factor_1``.

        Raises:
            UsageError: The sizes contradict each other.
        """
        key = declare(self.dynamic_dims, name, DimInfo(min, max, factor))
        self.record_hint("dynamic_dims", sorted(self.dynamic_dims))
        return key

    def load_dynamic_dims_config(self, path: str | os.PathLike[str]) -> None:
        """Declare the dimensions of a file, as ``create_dynamic_dim`` does.

        Args:
            path: YAML or JSON with lines such as ``batch_size: {min: 1, max: 16, factor: 1}``.

        Raises:
            UsageError: The file cannot be read, or declares no dimensions.
        """
        declare_file(self.dynamic_dims, path)
        self.record_hint("dynamic_dims", sorted(self.dynamic_dims))
