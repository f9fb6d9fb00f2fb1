"""What an engine is: it prepares a computation, runs it, can be timed, and says what it cannot do.

The emulated device knows engines by this protocol only. A computation that runs on the RDU is bound to
device memory when it is prepared, so that running it moves nothing; one that runs on the host takes
and returns host values: arrays, lists for sequences, None for empty optionals. Preparing and running
are apart, so that whoever times a run times nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

# Only types need them: the child process that takes samples shall not wait for them.
if TYPE_CHECKING:
    import onnx

    from samba_onnx.runtime.memory import DeviceMemory


class Rewriting(enum.Enum):
    """How far an engine may rewrite a computation before it runs it."""

    NONE = enum.auto()
    """Every node runs as it stands: the plainest reading, and for a single run the quickest."""
    EXACT = enum.auto()
    """What does not change numbers, as constants that are computed in advance."""
    FULL = enum.auto()
    """Whatever is faster."""


LACKING_HERE: Final = ("Failed to construct locale",)
"""Signs, in an engine's reason, that this machine lacks what another one may have: no fault of a
model's, nor of what was compiled of it."""


@dataclass(frozen=True)
class EngineSettings:
    """How an engine prepares computations."""

    threads: int | None = None
    """Threads within an operator; the engine's own choice, one per core, when None."""
    prepack: bool = True
    """Copy weights into the layout that kernels like best: slower to load, twice the memory,
    faster to run. Otherwise they stay mapped from their file."""
    several: bool = False
    """Whether more than one computation takes turns in a run."""
    trains: bool = False
    """Whether one of them is a backward, which needs much memory for a short time."""
    rewriting: Rewriting = Rewriting.FULL
    custom_ops: tuple[str, ...] = ()
    """Absolute paths of shared libraries with operators of custom domains, in onnxruntime's form: they
    export ``RegisterCustomOps``. Their code runs with the rights of this process."""


@dataclass(frozen=True)
class Computation:
    """A model to prepare, with what is known of it."""

    model: onnx.ModelProto
    """Plain ONNX and this product's own operators, functions inlined; belongs to the engine, which
    may change it. Inputs and outputs of one that is bound to device memory are symbols."""
    title: str
    """What messages call it, as ``section 3 (attention)``."""
    folder: str = ""
    """Where the files of external initializers lie; nowhere if empty."""
    splits: bool = False
    """Whether elementwise parts may be executed on their own, as those of optimizers."""
    rounds_as_device: bool = False
    """Whether bfloat16 is computed as the device computes it also on the host, where an engine may
    otherwise use kernels of its own."""
    light: bool = False
    """Whether waking threads would take longer than the work that they share."""


class BoundComputation(Protocol):
    """What executes in device memory."""

    def run(self) -> None:
        """Execute once: read inputs from device memory, and write outputs to it.

        Raises:
            Exception: One of the engine's ``failures``: an operator failed.
        """


class HostComputation(Protocol):
    """What executes on host values."""

    @property
    def inputs(self) -> Mapping[str, str]:
        """ONNX's text forms of the inputs' types, as ``tensor(float)``, by name, in order."""

    @property
    def outputs(self) -> Mapping[str, str]:
        """ONNX's text forms of the outputs' types, by name, in order."""

    def run(self, feed: Mapping[str, Any]) -> Sequence[Any]:
        """Execute once.

        Args:
            feed: Arrays by input name, with dtypes of :mod:`ml_dtypes` where numpy has none; lists
                and None where the input is a sequence or an optional.

        Returns:
            All outputs in order; fresh, they share no memory with the feed.

        Raises:
            Exception: One of the engine's ``failures``: an operator failed, or a value cannot be
                handed to it.
        """


class Engine(Protocol):
    """What executes the computations of one device."""

    @property
    def name(self) -> str:
        """By which users choose it, as ``onnxruntime``."""

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What running a computation raises when an operator fails."""

    def bind(
        self, computation: Computation, memory: DeviceMemory, frozen: Collection[str] = ()
    ) -> BoundComputation:
        """Prepare a computation on values in device memory.

        Args:
            computation: Its inputs and outputs are symbols.
            memory: Where these live.
            frozen: Inputs that have their values already and keep them until the computation is
                prepared again, so that the engine may compute with them in advance. Their
                elements do not share bytes.

        Returns:
            The computation, ready to run.

        Raises:
            ExecutionError: The engine cannot run it; names the operator and what it lacks.
        """

    def prepare(self, computation: Computation) -> HostComputation:
        """Prepare a computation on host values.

        Args:
            computation: To prepare.

        Returns:
            The computation, ready to run.

        Raises:
            ExecutionError: The engine cannot run it; names the operator and what it lacks.
        """

    def open(self, model: onnx.ModelProto | Path, title: str, folder: str = "") -> HostComputation:
        """Prepare somebody else's model as it is, without lowerings that it can do without.

        bfloat16 that the engine has no kernels for is computed as the device computes it.

        Args:
            model: In memory, or a file that may have external data beside it.
            title: What messages call it.
            folder: Where the files of external initializers lie, of a model in memory.

        Returns:
            The model, ready to run.

        Raises:
            ExecutionError: The engine cannot run it; names the operator and what it lacks.
        """

    def departure(self, model: onnx.ModelProto) -> str:
        """Say where the engine does not let its own kernels compute a model, as they are wrong on this machine.

        Args:
            model: Somebody else's model, as it is.

        Returns:
            A sentence with a count; empty where it runs the model as it is.
        """

    def reason(self, error: Exception) -> str:
        """Return what went wrong in a run, as one short line that names the operator.

        Args:
            error: One of ``failures``.
        """
