"""Makes onnxruntime's sessions; no other place does."""

from __future__ import annotations

import functools
import mmap
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_native

from samba_onnx.errors import UsageError
from samba_onnx.facts.families import SUMMING
from samba_onnx.runtime.engine.protocol import EngineSettings, Rewriting

_SILENT = 4
"""onnxruntime's severity "fatal": everything else reaches the user as an exception."""
_LONGEST_REASON = 300
NO_VALUES: Final[Mapping[str, ort.OrtValue]] = MappingProxyType({})
_LEVELS: Final = MappingProxyType(
    {
        Rewriting.NONE: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
        Rewriting.EXACT: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        Rewriting.FULL: ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    }
)

AS_WRITTEN: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Pairs of QuantizeLinear and DequantizeLinear become kernels of integers, some of which look
        # their results up in tables of 8 bits.
        "session.disable_quant_qdq": "1",
        # Products with weights of few bits quantise the other operand, too, which the model does not.
        "session.qdq_matmulnbits_accuracy_level": "1",
    }
)
"""Keeps onnxruntime from trading accuracy for speed in somebody else's model, with which others are
compared."""
_COLLISION: Final = "Attempt to replace the existing tensor"
_NAMES_TWICE: Final = "MatMulAddFusion"
"""The optimizer that names the shapes it adds the same every time, ``gemm_input_shape``, and fails where the
model has such an initializer."""
_OPTIMIZER: Final = re.compile(r"/(\w+Fusion)/")
"""The optimizer that made a node, as the node's name has it."""
_ATTEMPTS: Final = 4
ACCURACY: Final = "accuracy_level"
"""Attribute of onnxruntime's products with weights of few bits: in which type they may be computed."""
SIGNS: Final = (
    ACCURACY,
    "Integer",
    "QLinear",
    "QGemm",
    "QAttention",
    "DynamicQuantize",
    *sorted(SUMMING),
)
"""What is in the file of a model of which onnxruntime may compute something else than it says: an attribute,
and parts of the names of all operators that multiply integers of eight bits, or add."""
_NO_ENTRIES: Final[Mapping[str, str]] = MappingProxyType({})
# What the optimizer makes of quantised numbers around a product is a product of integers, too, which saturates
# on x86 without VNNI where its weight is int8. See lowerings.unsigned_weights.
_MOVED: Final[Mapping[str, str]] = MappingProxyType({"session.x64quantprecision": "1"})
"""Lets the optimizer make weights of int8 unsigned."""
_APART: Final[Mapping[str, str]] = MappingProxyType({"session.disable_quant_qdq": "1"})
"""Leaves what dequantises apart from the product, which is computed in float32."""
_NO_KERNEL: Final = "Failed to find kernel"


def make_session(
    source: bytes | str,
    settings: EngineSettings,
    *,
    folder: str = "",
    values: Mapping[str, ort.OrtValue] = NO_VALUES,
    disabled_optimizers: Sequence[str] = (),
    threads: int | None = None,
    entries: Mapping[str, str] = _NO_ENTRIES,
) -> ort.InferenceSession:
    """Make a session on the host's CPU.

    Args:
        source: A serialised model, or the path of one.
        settings: How the engine prepares computations: its threads, the layout of weights.
        folder: Where the files of external initializers of a serialised model lie.
        values: Content of external initializers that lie in memory; must live as long as the
            session.
        disabled_optimizers: Names of optimizers that must not see the model.
        threads: Threads within an operator, whatever the settings say.
        entries: Entries of the session's configuration, besides those that the settings make.

    Returns:
        The session. Whatever onnxruntime raises passes through.
    """
    # Weights that are external cannot be moved ("Attempt to replace the existing tensor").
    quantisation = _APART if folder or values else _MOVED

    def attempt(disabled: Sequence[str]) -> ort.InferenceSession:
        options = _options(settings, folder)
        _add(options, {**quantisation, **entries}, values, threads)
        providers = ["CPUExecutionProvider"]
        return ort.InferenceSession(
            source, options, providers=providers, disabled_optimizers=list(disabled)
        )

    disabled = list(disabled_optimizers)
    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt(disabled)
        except (ort_native.Fail, ort_native.NotImplemented) as error:
            culprit = _culprit(str(error))
            if not culprit and quantisation is _MOVED and _NO_KERNEL in str(error):
                # It moves weights of products of two int8, too, which are exact, and then have no kernel.
                quantisation = _APART
                continue
            if not culprit or culprit in disabled:
                raise
            disabled.append(culprit)
    return attempt(disabled)


def _culprit(message: str) -> str:
    """Return the optimizer without which a model may load that was refused with a message; empty if none.

    1. A model that onnxruntime optimised once before has names that an optimizer gives again.
    2. An optimizer made a node for which there is no kernel, as 1.25 makes a FusedMatMul of doubles, or one
       that another no longer knows.
    """
    if _COLLISION in message:
        return _NAMES_TWICE
    found = _OPTIMIZER.search(message)
    return found[1] if found else ""


def _add(
    options: ort.SessionOptions,
    entries: Mapping[str, str],
    values: Mapping[str, ort.OrtValue],
    threads: int | None,
) -> None:
    """Add to options what one session has of its own."""
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    if values:
        options.add_external_initializers(list(values), list(values.values()))
        # What the optimizer makes of them and then packs is freed one by one, not kept for
        # later in an arena.
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    if threads:
        options.intra_op_num_threads = threads


def may_be_inaccurate(path: Path) -> bool:
    """Tell whether onnxruntime may compute something else than a model says, without parsing its file.

    Args:
        path: The path of the model; for one that cannot be read there is nothing to fear.
    """
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            return any(content.find(sign.encode()) >= 0 for sign in SIGNS)
    except (OSError, ValueError):
        return False


def _options(settings: EngineSettings, folder: str) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = _SILENT
    options.graph_optimization_level = _LEVELS[settings.rewriting]
    options.intra_op_num_threads = settings.threads or 0
    options.use_deterministic_compute = True
    # A plan of all values of a run is one block as large as they are at their most, which
    # onnxruntime allocates beside what it has from the first run.
    options.enable_mem_pattern = not settings.trains
    # Work is dealt out in ever smaller blocks, so that a core that is disturbed does not
    # keep the others waiting at the end of each operator.
    entries = {"session.dynamic_block_base": "4"}
    if folder:
        entries["session.model_external_initializers_file_folder_path"] = folder
    if settings.several:
        # Every session has its own threads; those that still spin after their step would take
        # the cores away from the next one.
        entries["session.force_spinning_stop"] = "1"
    if not settings.prepack:
        entries["session.disable_prepacking"] = "1"
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    for library in settings.custom_ops:
        options.register_custom_ops_library(library)
    return options


def refuse_unusable_libraries(settings: EngineSettings) -> None:
    """Load the libraries of custom operators, to find now what is wrong with one.

    Args:
        settings: Their paths are looked at, and nothing else.

    Raises:
        UsageError: One cannot be loaded, or does not register operators.
    """
    for library in settings.custom_ops:
        try:
            ort.SessionOptions().register_custom_ops_library(library)
        except ort_errors() as error:
            raise UsageError(
                f"{library} is no library of custom operators for onnxruntime {ort.__version__}: "
                f"{reason_of(error)}"
            ) from None


_WHERE = re.compile(
    r"""
    (?:/\S+|\b\w+)\.(?:h|cc|cpp):\d+[ ]          # /source/file.cc:12
    (?:
        \S+[ ].*?was[ ]false\.[ ]                # type function(arguments) condition was false.
      | (?:[\w:<>~*&,]+[ ])*                     # types before the name
        [\w:<>~]+\((?:[^()]|\([^()]*\))*\)       # name(arguments)
        (?:[ ]const)?(?:::<lambda\([^)]*\)>)?[ ]
      | [A-Z]\w*[a-z][A-Z]?\w*[ ](?=[A-Z])       # the name alone, before a sentence
    )?
    """,
    re.VERBOSE,
)
"""Where in its source something went wrong, which is for its developers."""


def reason_of(error: BaseException) -> str:
    """Return what onnxruntime has to say, as one short line.

    Args:
        error: An exception of onnxruntime's.

    Returns:
        The operator and its complaint, without status codes and source paths.
    """
    text = " ".join(str(error).split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    node = re.search(r"while running (\w+) node\. Name:'([^']*)' Status Message: (.*)", text)
    if node:
        text = f"{node[1]} node {node[2]!r}: {node[3]}"
    text = re.sub(r"^Exception during initialization: ", "", text)
    text = _WHERE.sub("", text)
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."


@functools.cache
def ort_errors() -> tuple[type[Exception], ...]:
    """Return what onnxruntime raises: its own classes, and builtins for values it cannot take."""
    own = [
        kind
        for kind in vars(ort_native).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ]
    return (*own, MemoryError, RuntimeError, TypeError, ValueError)
