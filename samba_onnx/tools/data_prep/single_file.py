"""One file of text becomes one HDF5 file, with a log beside it and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samba_onnx.errors import UsageError
from samba_onnx.safety.leftovers import temporary_folder
from samba_onnx.tools.data_prep.article_reading import find_input
from samba_onnx.tools.data_prep.chat import require_chat_template
from samba_onnx.tools.data_prep.file_preparation import FileTask, prepare_file
from samba_onnx.tools.data_prep.hdf5_files import write_errors
from samba_onnx.tools.data_prep.logs import LOGGER, log_to
from samba_onnx.tools.data_prep.metrics import Metrics, metrics_text
from samba_onnx.tools.data_prep.preparation_options import PreparationOptions
from samba_onnx.tools.data_prep.reporting import Reporter, Silence
from samba_onnx.tools.data_prep.runs import line_warnings
from samba_onnx.tools.data_prep.tokenizer_record import describe_tokenizer, save_tokenizer
from samba_onnx.version import __version__


@dataclass(frozen=True)
class SingleFileResult:
    """What was made of one file."""

    output: str
    """The HDF5 file."""
    metrics: Metrics
    sha256: str
    """SHA-256 of the HDF5 file, in hexadecimal digits."""


def data_prep(
    input_path: Path,
    output_path: Path | None,
    tokenizer: Any,
    options: PreparationOptions | None = None,
    reporter: Reporter | None = None,
    *,
    overwrite_output_path: bool = False,
    log_file_path: Path | None = None,
) -> SingleFileResult:
    """Tokenize and pack one file.

    Args:
        input_path: A ``.jsonl`` or ``.txt`` file.
        output_path: The HDF5 file; None for one beside the input, of its name.
        tokenizer: A tokenizer of transformers.
        options: How lines become sequences; the defaults if left out.
        reporter: Hears of progress and warnings.
        overwrite_output_path: Whether to replace the output if it exists.
        log_file_path: None for ``logs.log`` in the folder of the output.

    Raises:
        UsageError: An option is wrong, or the output exists.
        DataError: The input cannot be read, and the error names file and line; or the tokenizer lacks
            the chat template that is to be applied.
        OutputError: The output cannot be written; it is as it was.
    """
    options, reporter = options or PreparationOptions(), reporter or Silence()
    if options.apply_chat_template:
        require_chat_template(tokenizer)
    (source,) = find_input(input_path, folders=False)
    target = output_path or input_path.with_suffix(".hdf5")
    if target.suffix != ".hdf5":
        raise UsageError(f"{target}: expected an output file that ends with .hdf5")
    if target.exists() and not overwrite_output_path:
        raise UsageError(f"{target}: it exists: --overwrite_output_path replaces it")
    with log_to(log_file_path or target.parent / "logs.log"):
        LOGGER.info("samba-onnx %s prepares %s as %s", __version__, source, target)
        LOGGER.info("settings: %s", options)
        skipped = target.parent / "json_error_log" / f"{target.stem}.log"
        return _prepare(FileTask(source, target, skipped), tokenizer, options, reporter)


def _prepare(
    task: FileTask, tokenizer: Any, options: PreparationOptions, reporter: Reporter
) -> SingleFileResult:
    """Prepare the file, and log what became of it."""
    with (
        write_errors(task.target),
        temporary_folder("tokenizer") as parent,
    ):
        # Chat templates are read from here, and tokenizers that are more than a library's.
        folder = Path(parent) / "tokenizer"
        save_tokenizer(tokenizer, None, folder)
        record = describe_tokenizer(tokenizer, None, str(folder))
        reporter.begin("tokenizing and packing", task.source.stat().st_size)
        result = prepare_file(task, options, record, reporter.advance)
    for number, reason in result.skipped:
        LOGGER.warning("line %d skipped: %s", number, reason)
    for message in line_warnings(result.metrics, task.skipped):
        LOGGER.warning(message)
        reporter.warn(message)
    LOGGER.info("metrics\n%s", metrics_text({task.target.stem: result.metrics}))
    return SingleFileResult(str(task.target), result.metrics, result.sha256)
