"""What is done with a PyTorch model that a user names; torch is imported only when one is given."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from samba_onnx.compiling.model_sources import is_configuration
from samba_onnx.errors import MissingLibraryError

if TYPE_CHECKING:
    from samba_onnx.comparing.compared_values import ValueComparison
    from samba_onnx.comparing.trials import Verification
    from samba_onnx.compiling.options import CompileOptions
    from samba_onnx.compiling.size_dimensions import Sizing
    from samba_onnx.compiling.torch.cached_decoder import CausalModel
    from samba_onnx.pef import Pef
    from samba_onnx.pef.manifest import Manifest


def convert_torch(
    model: str, output: str, options: CompileOptions, progress: Callable[[str], None]
) -> Pef:
    """Convert a PyTorch model.

    Args:
        model: A factory, a ``.pt2`` file or a Hugging Face configuration.
        output: The PEF to write.
        options: What the user decides.
        progress: Called with the name of each step before it begins.

    Raises:
        UsageError: torch is not installed, or an argument is wrong.
        ModelError: The model cannot be converted.
        PassMismatchError: A pass changes what it computes.
    """
    _import_porting(progress, options.training.translations)
    from samba_onnx.compiling.torch import porting

    with _prints_elsewhere():
        loaded = porting.load_torch_model(model, train=options.training.train)
        return porting.port(loaded, output, options=options, progress=progress)


def analyze_torch(model: str, options: CompileOptions, progress: Callable[[str], None]) -> Manifest:
    """Analyze a PyTorch model.

    Args:
        model: A factory, a ``.pt2`` file or a Hugging Face configuration.
        options: What the user decides.
        progress: Called with the name of each step before it begins.

    Raises:
        UsageError: torch is not installed, or an argument is wrong.
        ModelError: The model cannot be exported.
    """
    _import_porting(progress, options.training.translations)
    from samba_onnx.compiling.torch import porting

    with _prints_elsewhere():
        # A plan needs no values of weights, of which a large model has more than memory.
        loaded = porting.load_torch_model(model, train=options.training.train, weights=False)
        return porting.analyze_torch(loaded, options=options, progress=progress)


def torch_sizing(
    model: str, options: CompileOptions, progress: Callable[[str], None]
) -> Callable[[str], Sizing]:
    """Return what plans a PyTorch model at sizes of a dimension; the model is loaded once.

    Args:
        model: A factory, a ``.pt2`` file or a Hugging Face configuration.
        options: What the user decides.
        progress: Called with the name of each step before it begins.

    Returns:
        A function of what the user calls the dimension; it raises ``UsageError`` where it cannot be told
        which one is meant, or all are static.

    Raises:
        UsageError: torch is not installed, or an argument is wrong.
        ModelError: The model cannot be loaded.
    """
    _import_porting(progress, options.training.translations)
    from samba_onnx.compiling.size_dimensions import Sizing
    from samba_onnx.compiling.torch import porting

    with _prints_elsewhere():
        loaded = porting.load_torch_model(model, train=options.training.train, weights=False)

    def sizing(text: str) -> Sizing:
        dimension = porting.torch_dimension(text, loaded)

        def plan(size: int) -> Manifest:
            with _prints_elsewhere():
                sized = porting.resized(loaded, dimension, size)
                return porting.analyze_torch(sized, options=options)

        configured = text == "seq" and is_configuration(model)
        return Sizing(dimension, plan, porting.stated_positions(model) if configured else None)

    return sizing


def load_causal_model(source: str, progress: Callable[[str], None]) -> CausalModel:
    """Return the language model of a Hugging Face configuration, without values of weights.

    Args:
        source: A ``config.json``, or the folder of one.
        progress: Called with the name of each step before it begins.

    Raises:
        UsageError: torch or transformers are not installed, or the file cannot be read.
        ModelError: It is no configuration of a causal language model.
    """
    _import_porting(progress, None)
    from samba_onnx.compiling.torch.cached_decoder import CausalModel

    with _prints_elsewhere():
        return CausalModel(source)


def verify_torch(
    model: str,
    pef: Pef,
    progress: Callable[[str], None],
    *,
    translations: Sequence[str] | None = None,
    **options: Any,
) -> Verification:
    """Compare the outputs of a PEF with those of the PyTorch model that it was made of.

    Args:
        model: A factory or a ``.pt2`` file.
        pef: The PEF, open, with its weights.
        progress: Called with the name of each step before it begins.
        translations: Files that register translations of the user's own operators.
        **options: Tolerances, threads and engine, as
            ``samba_onnx.compiling.torch.module_verification.verify_module`` takes them.

    Raises:
        UsageError: torch is not installed, or the PEF is not of this model.
        ModelError: The model cannot be exported.
    """
    _import_porting(progress, translations)
    from samba_onnx.compiling.torch import module_verification, porting

    with _prints_elsewhere():
        loaded = porting.load_torch_model(model)
        progress("compare")
        return module_verification.verify_module(loaded, pef, **options)


def compare_torch(
    model: str,
    pef: Pef,
    progress: Callable[[str], None],
    *,
    threads: int | None,
    translations: Sequence[str] | None = None,
) -> ValueComparison:
    """Compare a PEF with the PyTorch model that it was made of.

    Args:
        model: A factory, a ``.pt2`` file or a Hugging Face configuration; a factory with optimizers where the PEF trains.
        pef: The PEF, open.
        progress: Called with the name of each step before it begins.
        threads: Threads within operators; all cores where None.
        translations: Files that register translations of the user's own operators.

    Raises:
        UsageError: torch is not installed, or the PEF is not of this model.
        ModelError: The model cannot be exported.
    """
    _import_porting(progress, translations)
    from samba_onnx.compiling.torch import module_comparison, porting

    with _prints_elsewhere():
        loaded = porting.load_torch_model(model, train=module_comparison.trains(pef))
        progress("compare")
        return module_comparison.compare_module(loaded, pef, threads=threads)


def export_trained(
    model: str, checkpoint: str, output: str, progress: Callable[[str], None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write a checkpoint into an ONNX model.

    Args:
        model: Path of the model.
        checkpoint: Path of the checkpoint.
        output: Path of the model to write.
        progress: Called with the name of each step before it begins.

    Returns:
        Names of the initializers with new content, and of the others that could have it.

    Raises:
        UsageError: torch is not installed, or the checkpoint is of another model.
        ModelError: A file cannot be read.
        OutputError: The file cannot be written.
    """
    progress("import torch")
    _require_torch()
    from samba_onnx.compiling.torch import porting

    progress("write")
    done = porting.export_trained(model, checkpoint, output)
    return done.written, done.kept


def _prints_elsewhere() -> AbstractContextManager[object]:
    """Keep what the user's own code prints out of the answer."""
    return contextlib.redirect_stdout(sys.stderr)


def _import_porting(
    progress: Callable[[str], None], translations: Sequence[str] | None = None
) -> None:
    """Import torch and what ports its models, register users' translations, and begin to load a model."""
    progress("import torch")
    _require_torch()
    from samba_onnx.compiling.torch import porting

    progress("load")
    with _prints_elsewhere():
        porting.load_translations(translations or ())


def _require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingLibraryError(
            "PyTorch models need torch: install it with pip install 'samba-onnx[torch]'"
        ) from None
