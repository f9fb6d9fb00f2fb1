"""Every error that samba-onnx raises on purpose.

The tree, with the builtin that each class also is::

    SambaError
    ├── UsageError (ValueError)             an argument or option is wrong
    │   └── MissingLibraryError (ImportError)   it needs a library that is not installed
    ├── UnsupportedSymbolError (ImportError)   a name of SambaFlow's is not here
    ├── ModelError (ValueError)             the model that was given cannot be used
    │   ├── ModelFileError (OSError)        its file or external data cannot be read safely
    │   ├── InvalidModelError               its content breaks the rules of ONNX
    │   ├── ExportMismatchError             its graph computes something else than torch
    │   ├── EngineRefusalError              an operator of its graph cannot be run
    │   ├── GradientError                   a loss cannot be differentiated
    │   └── ModelLimitError                 it asks for more than a safe limit allows
    │       └── TimeLimitError              work on it took longer than it was given
    ├── TargetError (ValueError)            a target profile is unknown or malformed
    ├── DataError (ValueError)              text or a dataset cannot be used
    ├── PefError (ValueError)               a PEF cannot be used
    │   ├── PefFormatError                  it is not a whole, well-formed PEF
    │   ├── PefChecksumError                a byte differs from what was written
    │   ├── PefVersionError                 a newer samba-onnx wrote it
    │   └── GraphMismatchError              it was compiled from another model
    ├── OutputError (OSError)               a result cannot be written
    ├── DeviceError (RuntimeError)          the emulated device refuses a request
    │   ├── OutOfDeviceMemoryError (MemoryError)   what was asked for does not fit
    │   ├── InputError (ValueError)         a name, shape or dtype differs from the compiled one
    │   ├── ScheduleError (ValueError)      a section, section type or call does not exist
    │   ├── NoDeviceError                   a tensor has no copy on a device
    │   └── NotTracedError                  the session has no program yet
    ├── TransferLimitError (AssertionError) more was copied than a test allows
    ├── ExecutionError (RuntimeError)       an engine failed, crashed or ran out of time
    │   └── AnomalyError (ArithmeticError)  a section made a NaN or an infinite number
    ├── ReplicaError (RuntimeError)         another process of a training is lost
    └── InternalError (AssertionError)      a promise of ours was broken: please report it
        └── PassMismatchError               a pass of the compiler changed what a model computes

A message says what was given, what was expected and what to do. The first five branches and
``DeviceError`` are the caller's to mend; ``InternalError`` is ours. What works but is not what was
probably meant is a warning::

    SambaWarning (UserWarning)
    ├── BranchWarning                       what a module does depends on values of tensors
    ├── FoldedWeightsWarning                a model was optimised for inference, not for training
    └── HostOperatorWarning                 an operator is computed on the host
"""

import copy
import os
from collections.abc import Mapping
from typing import Any, Self

__all__ = [
    "AnomalyError",
    "BranchWarning",
    "DataError",
    "DeviceError",
    "EngineRefusalError",
    "ExecutionError",
    "ExportMismatchError",
    "FoldedWeightsWarning",
    "GradientError",
    "GraphMismatchError",
    "HostOperatorWarning",
    "InputError",
    "InternalError",
    "InvalidModelError",
    "MissingLibraryError",
    "ModelError",
    "ModelFileError",
    "ModelLimitError",
    "NoDeviceError",
    "NotTracedError",
    "OutOfDeviceMemoryError",
    "OutputError",
    "PassMismatchError",
    "PefChecksumError",
    "PefError",
    "PefFormatError",
    "PefVersionError",
    "ReplicaError",
    "SambaError",
    "SambaWarning",
    "ScheduleError",
    "TargetError",
    "TimeLimitError",
    "TransferLimitError",
    "UnsupportedSymbolError",
    "UsageError",
]


class SambaError(Exception):
    """Base of every error that samba-onnx raises on purpose.

    What an error is about stands in its text and, for programs, in the fields ``path``, ``node``,
    ``operator`` and ``location``; a field is None when the error is not about such a thing, or it
    is not known where the error was raised.
    """

    def __init__(
        self,
        message: str = "",
        *,
        path: str | os.PathLike[str] | None = None,
        node: str | None = None,
        operator: str | None = None,
        location: str | None = None,
        reason: str = "",
    ) -> None:
        """Keep what the error is about.

        Args:
            message: What was given, what was expected and what to do, in one sentence.
            path: The file that cannot be used.
            node: Name of a node of a graph; empty for one without a name.
            operator: An operator: ``Gelu``, ``com.example::Swirl``, or ``aten.silu.default``.
            location: The line of the user's model that the node comes from, as ``model.py:12``.
            reason: The words of a library that refused, which the message may shorten; empty if it
                had none.
        """
        super().__init__(message)
        self.path = None if path is None else os.fspath(path)
        self.node = node
        self.operator = operator
        self.location = location
        self.reason = reason

    def within(
        self,
        place: str,
        *,
        path: str | os.PathLike[str] | None = None,
        node: str | None = None,
        operator: str | None = None,
    ) -> Self:
        """Return the same error with the place where it came up in front of its text.

        Fields that are known already stay: the innermost place knows best.

        Args:
            place: What the text is to begin with, as the name of a file or node.
            path: The file, where the error does not name one yet.
            node: The node, where the error does not name one yet.
            operator: The operator, where the error does not name one yet.
        """
        placed = copy.copy(self)
        placed.args = (f"{place}: {self}",)
        if self.path is None and path is not None:
            placed.path = os.fspath(path)
        placed.node = node if self.node is None else self.node
        placed.operator = operator if self.operator is None else self.operator
        return placed


class UsageError(SambaError, ValueError):
    """An argument or command-line option is wrong."""


class MissingLibraryError(UsageError, ImportError):
    """What was asked for needs a library of an extra, as torch, and it is not installed."""


class UnsupportedSymbolError(SambaError, ImportError):
    """A module, function or class of SambaFlow's is not part of samba-onnx; the text names it."""


class ModelError(SambaError, ValueError):
    """The model that was given cannot be used."""


class ModelFileError(ModelError, OSError):
    """A model's file or external data cannot be read safely."""


class InvalidModelError(ModelError):
    """A model's content breaks the rules of ONNX."""


class ExportMismatchError(ModelError):
    """An exported graph computes something else than the module."""


class EngineRefusalError(ModelError):
    """The engine refuses an operator of a model, as it was exported or as it was given."""

    def __init__(
        self, message: str = "", *, section_type: str | None = None, **fields: Any
    ) -> None:
        """Keep what the error is about.

        Args:
            message: See ``SambaError``.
            section_type: Type of the sections that the operator would be in, as ``BCKWD``.
            **fields: See ``SambaError``. Without an operator, the engine refuses the graph as a
                whole.
        """
        super().__init__(message, **fields)
        self.section_type = section_type


class GradientError(ModelError):
    """A loss reaches no parameter, or an operator on the way to one has no gradient."""


class ModelLimitError(ModelError):
    """A model asks for more memory, nesting, expansion or time than a safe limit allows."""


class TimeLimitError(ModelLimitError):
    """Work on a model took longer than it was given, and was stopped."""


class TargetError(SambaError, ValueError):
    """A target profile is unknown or malformed."""


class DataError(SambaError, ValueError):
    """Text that is to be prepared for training, or a dataset made of it, cannot be used."""

    def __init__(self, message: str = "", *, line: int | None = None, **fields: Any) -> None:
        """Keep what the error is about.

        Args:
            message: See ``SambaError``.
            line: Number of the line in the file ``path``, from 1.
            **fields: See ``SambaError``.
        """
        super().__init__(message, **fields)
        self.line = line


class PefError(SambaError, ValueError):
    """A PEF cannot be used."""


class PefFormatError(PefError):
    """A file is not a whole, well-formed PEF."""


class PefChecksumError(PefError):
    """A byte of a PEF differs from what was written."""


class PefVersionError(PefError):
    """A PEF was written by a newer samba-onnx, in a format that this one does not know."""


class GraphMismatchError(PefError):
    """A PEF was compiled from another model than the one that is to run."""


class OutputError(SambaError, OSError):
    """A result cannot be written."""


class DeviceError(SambaError, RuntimeError):
    """The emulated device refuses a request."""


class OutOfDeviceMemoryError(DeviceError, MemoryError):
    """What was asked for does not fit in device memory."""

    def __init__(
        self, message: str = "", *, regions: Mapping[str, int] | None = None, **fields: Any
    ) -> None:
        """Keep what the error is about.

        Args:
            message: See ``SambaError``.
            regions: Bytes of the regions that would all have to be in off-chip memory, by name, where that
                is what does not fit.
            **fields: See ``SambaError``.
        """
        super().__init__(message, **fields)
        self.regions: Mapping[str, int] = dict(regions or {})


class InputError(DeviceError, ValueError):
    """A tensor's name, shape or dtype differs from the compiled one."""


class ScheduleError(DeviceError, ValueError):
    """A section, section type or call does not exist in the PEF."""


class NoDeviceError(DeviceError):
    """A tensor's device copy was asked for, but it has none."""


class NotTracedError(DeviceError):
    """The session was asked to run or read before it had a program."""


class DataLoaderError(SambaError, RuntimeError):
    """A DataLoader gave no batch in the time that it had."""


class TransferLimitError(SambaError, AssertionError):
    """More was copied between host and device than was expected."""


class ExecutionError(SambaError, RuntimeError):
    """An engine failed, crashed or ran out of time; ``reason`` has its own words."""


class LostRduError(ExecutionError):
    """Another RDU of the same program failed, so that no exchange with it can be made."""


class AnomalyError(ExecutionError, ArithmeticError):
    """A section or fallback made a NaN or an infinite number, in a run that looks for them."""


class ReplicaError(SambaError, RuntimeError):
    """Another replica of a data-parallel training died, hangs, raised or left; ``rank`` is its number."""

    def __init__(self, message: str = "", *, rank: int | None = None, **fields: Any) -> None:
        """Keep what the error is about.

        Args:
            message: See ``SambaError``.
            rank: The replica that is lost; None if it is not known.
            **fields: See ``SambaError``.
        """
        super().__init__(message, **fields)
        self.rank = rank


class InternalError(SambaError, AssertionError):
    """A promise of samba-onnx itself was broken; the message asks for a report."""


class PassMismatchError(InternalError):
    """A pass of the compiler changed what a model computes; only ``--check-passes`` finds out."""

    def __init__(
        self,
        message: str = "",
        *,
        passes: tuple[str, ...] = (),
        reduction: Any = None,
        **fields: Any,
    ) -> None:
        """Keep what the error is about.

        Args:
            message: See ``SambaError``.
            passes: Names of the passes among which the guilty one is: one, unless the engine could not
                run the model in between.
            reduction: The smallest part of the model that the passes spoil, a
                ``samba_onnx.comparing.reduction.Reduction``; None where no part of it shows the fault.
            **fields: See ``SambaError``.
        """
        super().__init__(message, **fields)
        self.passes = passes
        self.reduction = reduction


class SambaWarning(UserWarning):
    """Base of every warning that samba-onnx gives."""


class FoldedWeightsWarning(SambaWarning):
    """A model's weights were merged or folded for inference, and would train differently."""


class BranchWarning(SambaWarning):
    """A module looks at the values of tensors: only what it does for the given ones is compiled."""


class HostOperatorWarning(SambaWarning):
    """An operator that the functional interface does not have is computed on the host."""
