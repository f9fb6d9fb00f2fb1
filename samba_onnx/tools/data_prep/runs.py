"""A whole input becomes a folder of HDF5 files that training reads."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samba_onnx.errors import DataError, UsageError
from samba_onnx.tools.data_prep.article_reading import find_input
from samba_onnx.tools.data_prep.balancing import balance
from samba_onnx.tools.data_prep.chat import require_chat_template
from samba_onnx.tools.data_prep.engines import Job, make_engine
from samba_onnx.tools.data_prep.file_preparation import FileResult, FileTask
from samba_onnx.tools.data_prep.hdf5_files import sha256_of, write_errors
from samba_onnx.tools.data_prep.locating import located
from samba_onnx.tools.data_prep.logs import LOGGER, log_to
from samba_onnx.tools.data_prep.metrics import Metrics, metrics_text
from samba_onnx.tools.data_prep.output_folder import (
    OutputFolder,
    write_checksums,
    write_json,
    write_yaml,
)
from samba_onnx.tools.data_prep.preparation_options import DatasetOptions, Shuffle
from samba_onnx.tools.data_prep.reporting import Reporter, Silence
from samba_onnx.tools.data_prep.run_state import RunState
from samba_onnx.tools.data_prep.shuffling import shuffle_in_memory, shuffle_large_file
from samba_onnx.tools.data_prep.splitting import (
    SplitCounts,
    require_lines,
    split_counts,
    split_in_turn,
)
from samba_onnx.tools.data_prep.tokenizer_record import (
    TokenizerRecord,
    describe_tokenizer,
    save_tokenizer,
)
from samba_onnx.version import __version__


@dataclass(frozen=True)
class DatasetResult:
    """What a pipeline has made."""

    output: str
    """The folder."""
    metrics: dict[str, Metrics]
    """By kind of file: ``train``, and ``dev`` where there is some."""
    metadata: dict[str, Any]
    """What ``metadata.yaml`` says."""


def pipeline(
    input_path: Path,
    output_path: Path | None,
    tokenizer: Any,
    config: Any = None,
    options: DatasetOptions | None = None,
    reporter: Reporter | None = None,
) -> DatasetResult:
    """Shuffle, split, tokenize and pack an input, and write a folder that training reads.

    A run that was interrupted goes on where it was when it is called again in the same way: files
    that are finished are verified by their checksums and kept.

    Args:
        input_path: A ``.jsonl`` or ``.txt`` file, or a folder of files of one of these kinds.
        output_path: The folder; None for one beside the input, of its name.
        tokenizer: A tokenizer of transformers.
        config: The configuration of its model, for the copy of the tokenizer.
        options: How; the defaults if left out.
        reporter: Hears of progress and warnings.

    Raises:
        UsageError: An option is wrong, or the output folder is not empty.
        DataError: The input cannot be read, and the error names file and line; or the tokenizer lacks
            the chat template that is to be applied.
        OutputError: A file cannot be written. What is finished stays.
        ExecutionError: A worker died.
    """
    options = options or DatasetOptions()
    files = find_input(input_path, folders=True)
    if options.preparation.apply_chat_template:
        require_chat_template(tokenizer)
    folder = OutputFolder(output_path or default_output(input_path))
    counts = split_counts(options.splits, sum(path.stat().st_size for path in files))
    require_lines(files, counts.total)
    run = _Run(files, folder, counts, options, reporter or Silence())
    with folder.locked(), write_errors(folder.path):
        return run.run(tokenizer, config)


def default_output(input_path: Path) -> Path:
    """Return the folder beside an input where its dataset goes.

    Args:
        input_path: ``corpus.jsonl``, which gives ``corpus``, or a folder ``corpus``, which gives
            ``corpus_prepared``.
    """
    if input_path.is_dir():
        return input_path.resolve().with_name(f"{input_path.resolve().name}_prepared")
    return input_path.with_suffix("")


class _Run:
    """One run of a pipeline, step by step."""

    def __init__(
        self,
        files: Sequence[Path],
        folder: OutputFolder,
        counts: SplitCounts,
        options: DatasetOptions,
        reporter: Reporter,
    ) -> None:
        """Keep what every step needs.

        Args:
            files: The input.
            folder: The output.
            counts: How many files there will be.
            options: How.
            reporter: Hears of progress and warnings.
        """
        self._files = files
        self._folder = folder
        self._counts = counts
        self._options = options
        self._reporter = reporter
        self._suffix = files[0].suffix
        self._texts = {
            name: (kind, folder.text(kind, name, self._suffix)) for kind, name in counts.names()
        }

    def run(self, tokenizer: Any, config: Any) -> DatasetResult:
        """Do everything.

        Args:
            tokenizer: A tokenizer of transformers.
            config: The configuration of its model, or None.

        Raises:
            SambaError: See ``pipeline``.
        """
        record = describe_tokenizer(tokenizer, config, str(self._folder.tokenizer.absolute()))
        state = self._state(record)
        with log_to(self._options.log_file_path or self._folder.log):
            LOGGER.info("samba-onnx %s prepares %s", __version__, self._input_text())
            LOGGER.info("settings: %s", state.settings)
            if not self._folder.tokenizer.exists() or not state.splits:
                save_tokenizer(tokenizer, config, self._folder.tokenizer)
            self._folder.remove_temporary()
            self._warn_of_ratios()
            self._split(state)
            try:
                results = self._prepare(state, record)
            finally:  # workers that were ended leave what they were writing
                self._folder.remove_temporary()
            return self._complete(results, record)

    def _input_text(self) -> str:
        first, count = self._files[0], len(self._files)
        return str(first) if count == 1 else f"{count} files of {first.parent}"

    def _warn_of_ratios(self) -> None:
        """Say so where a ratio asks for files of a kind, and comes to none."""
        splits, counts = self._options.splits, self._counts
        ratios = (("dev", splits.dev_ratio, counts.dev), ("test", splits.test_ratio, counts.test))
        for kind, ratio, count in ratios:
            if ratio and not count:
                self._warn(
                    f"{kind}_ratio {ratio} of {counts.total} files comes to no {kind} file: give a "
                    "larger ratio, or more --num_training_splits"
                )

    def _warn(self, message: str) -> None:
        LOGGER.warning(message)
        self._reporter.warn(message)

    def _state(self, record: TokenizerRecord) -> RunState:
        """Return the state of an interrupted run like this, or a new one in an empty folder."""
        settings = self._settings(record)
        folder, overwrites = self._folder, self._options.overwrite_output_path
        state = None if overwrites else RunState.read(folder.state)
        if state is not None:
            difference = state.difference(settings)
            if difference:
                raise UsageError(
                    f"{folder.path}: an interrupted run was begun otherwise: {difference}: give what "
                    "was given then, or start anew with --overwrite_output_path"
                )
            return state
        if overwrites:
            folder.clear(self._files, self._options.log_file_path)
        elif not folder.is_empty():
            raise UsageError(
                f"{folder.path}: the output folder is not empty: give another --output_path, or "
                "--overwrite_output_path to replace the dataset in it"
            )
        state = RunState(folder.state, settings)
        state.write()
        return state

    def _settings(self, record: TokenizerRecord) -> dict[str, Any]:
        """Return all that the result depends on."""
        options = _plain(dataclasses.asdict(self._options))
        # None of these changes a sequence; how many files there are is stated below, as it was counted.
        for name in ("num_workers", "engine", "overwrite_output_path", "log_file_path", "splits"):
            del options[name]
        # Size and time show another input: to read all of it would take as long as to split it.
        sizes = [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in self._files]
        return {
            "version": __version__,
            "input": sizes,
            "files": dataclasses.asdict(self._counts),
            "tokenizer": hashlib.sha256(repr(record).encode()).hexdigest(),
            **options.pop("preparation"),
            **options,
        }

    def _split(self, state: RunState) -> None:
        """Write the text of every file, unless an earlier run has done so."""
        missing = [
            name
            for name, (_, path) in self._texts.items()
            if not self._is_text_whole(state, name, path)
            # Text whose sequences are finished is needed no more.
            and not state.finished(name, self._folder.hdf5(name))
        ]
        if not missing:
            LOGGER.info("the text is split already")
            return
        targets = [path for _, path in self._texts.values()]
        for path in {target.parent for target in targets}:
            path.mkdir(exist_ok=True)
        size = sum(path.stat().st_size for path in self._files)
        self._reporter.begin("splitting the text", size)
        self._share_out(targets)
        state.splits = {name: sha256_of(path) for name, (_, path) in self._texts.items()}
        state.write()
        LOGGER.info("split into %d files", len(targets))

    @staticmethod
    def _is_text_whole(state: RunState, name: str, path: Path) -> bool:
        return name in state.splits and path.is_file() and sha256_of(path) == state.splits[name]

    def _share_out(self, targets: Sequence[Path]) -> None:
        shuffle, seed, reporter = self._options.shuffle, self._options.seed, self._reporter
        if shuffle is Shuffle.ON_RAM:
            shuffle_in_memory(self._files, targets, seed, reporter)
        elif shuffle is Shuffle.LARGE_FILE:
            # A shuffle that was interrupted left a part of the lines there.
            shutil.rmtree(self._folder.buckets, ignore_errors=True)
            self._folder.buckets.mkdir()
            shuffle_large_file(self._files, targets, self._folder.buckets, seed, reporter)
            self._folder.buckets.rmdir()
        else:
            split_in_turn(self._files, targets, reporter)

    def _prepare(self, state: RunState, record: TokenizerRecord) -> dict[str, FileResult]:
        """Prepare every file that is not finished; return what became of each."""
        names = [name for name, (kind, _) in self._texts.items() if kind != "test"]
        done = [name for name in names if state.finished(name, self._folder.hdf5(name))]
        if done:
            message = f"{len(done)} of {len(names)} files are finished already, and are kept"
            self._reporter.warn(message)
            LOGGER.info(message)
        tasks = {self._task(name): name for name in names if name not in done}
        self._reporter.begin(
            "tokenizing and packing", sum(task.source.stat().st_size for task in tasks)
        )
        job = Job(tuple(tasks), self._options.preparation, record, self._options.num_workers)
        try:
            for task, result in make_engine(self._options.engine).run(job, self._reporter):
                # Written after each file, which is then all that an interruption costs a worker.
                state.results[tasks[task]] = result
                state.write()
                LOGGER.info("%s: %d sequences", tasks[task], result.metrics.sequences)
        except DataError as error:
            # Users know their input, and nothing of the files that it was split into.
            raise located(error, self._files) from None
        return {name: state.results[name] for name in names}

    def _task(self, name: str) -> FileTask:
        folder = self._folder
        return FileTask(self._texts[name][1], folder.hdf5(name), folder.skipped / f"{name}.log")

    def _complete(self, results: dict[str, FileResult], record: TokenizerRecord) -> DatasetResult:
        """Balance the files, and write what stands beside them."""
        metrics, smallest = {}, {}
        for kind in ("train", "dev"):
            names = [name for name in results if self._texts[name][0] == kind]
            sizes = [results[name].metrics.sequences for name in names]
            if names:
                metrics[kind] = sum((results[name].metrics for name in names), Metrics())
            if names and self._options.balance:
                self._reporter.begin(f"balancing the {kind} files")
                sizes = balance([self._folder.hdf5(name) for name in names])
            smallest[kind] = min(sizes, default=None)
        self._log(results, metrics)
        metadata = {
            "max_seq_length": self._options.preparation.max_seq_length,
            "token_type_ids": True,
            "vocab_size": record.vocabulary,
            "tokenizer_model_type": record.model_type,
            "number_of_training_files": self._counts.train,
            "number_of_dev_files": self._counts.dev,
            "number_of_test_files": self._counts.test,
            "max_batch_size_train": smallest["train"],
            "max_batch_size_dev": smallest["dev"],
            **{
                f"{kind}_{name}": count
                for kind, figures in metrics.items()
                if figures.articles
                for name, count in figures.described().items()
            },
        }
        self._write_beside(metadata)
        return DatasetResult(str(self._folder.path), metrics, metadata)

    def _write_beside(self, metadata: dict[str, Any]) -> None:
        folder, categories = self._folder, self._options.preparation.categories
        if not self._options.keep_split_jsonls:
            shutil.rmtree(folder.splits, ignore_errors=True)
        if categories is not None:
            ids = {name: number for number, name in enumerate(categories)}
            write_json(folder.path / "category_to_id.json", ids)
        write_yaml(folder.path / "metadata.yaml", metadata)
        self._reporter.begin("computing checksums")
        write_checksums(folder)
        # Last: up to here the folder is that of a run that has not ended.
        folder.state.unlink()

    def _log(self, results: dict[str, FileResult], metrics: dict[str, Metrics]) -> None:
        """Log what was skipped and replaced, and the metrics."""
        for name, result in results.items():
            for number, reason in result.skipped:
                LOGGER.warning("%s: line %d skipped: %s", name, number, reason)
        for message in line_warnings(sum(metrics.values(), Metrics()), self._folder.skipped):
            self._warn(message)
        LOGGER.info("metrics\n%s", metrics_text(metrics))


def line_warnings(metrics: Metrics, skipped: Path) -> list[str]:
    """Return a sentence for each way in which lines are not what they were in the input.

    Args:
        metrics: The counts of all files.
        skipped: Where lines are that were skipped.
    """
    messages = []
    if metrics.lines_replaced:
        messages.append(
            f"bytes or characters that are not UTF-8 in {_lines(metrics.lines_replaced)}: U+FFFD stands "
            "in their place"
        )
    if metrics.lines_skipped:
        messages.append(
            f"skipped {_lines(metrics.lines_skipped)} that could not be read: see {skipped}"
        )
    return messages


def _lines(count: int) -> str:
    return f"{count:,} line{'' if count == 1 else 's'}"


def _plain(value: Any) -> Any:
    """Return settings in the types of JSON."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value
