"""``samba-port data-prep``."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_YES
from samba_onnx.cli.options import JsonOption, QuietOption, VerboseOption
from samba_onnx.errors import UsageError
from samba_onnx.tools.data_prep.data_options import (
    AttentionBoundaryOption,
    BalanceOption,
    CategoriesOption,
    ChatOption,
    CompletionKeywordOption,
    DevRatioOption,
    DevSplitsOption,
    EngineOption,
    IgnoreOption,
    InputOption,
    KeepPromptsOption,
    KeepSplitsOption,
    LengthOption,
    LogOption,
    OutputOption,
    OverwriteOption,
    PackingBoundaryOption,
    PackingOption,
    PostfixOption,
    PrefixOption,
    PromptKeywordOption,
    SeedOption,
    ShuffleOption,
    SilentOption,
    SpaceOption,
    SpecialTokensOption,
    TestRatioOption,
    TestSplitsOption,
    TokenizerOption,
    TrainingSplitsOption,
    WorkersOption,
)

if TYPE_CHECKING:
    from samba_onnx.tools.data_prep.metrics import Metrics
    from samba_onnx.tools.data_prep.preparation_options import PreparationOptions


def group() -> None:
    """Prepare text for training.

    It is tokenized, packed into sequences of one length, and written as HDF5 that training reads.
    Commands and options have the names of SambaNova's own data preparation.

    Examples:
      samba-port data-prep pipeline --input_path=corpus.jsonl --output_path=out --pretrained_tokenizer=./tokenizer
      samba-port data-prep data_prep --input_path=corpus.jsonl --pretrained_tokenizer=./tokenizer
      samba-port data-prep decode out/train_1_of_32.hdf5 --count 2
    """


def pipeline(
    input_path: InputOption,
    pretrained_tokenizer: TokenizerOption,
    output_path: OutputOption = None,
    log_file_path: LogOption = None,
    overwrite_output_path: OverwriteOption = False,
    ignore_input_format_error: IgnoreOption = False,
    special_tokens_dict: SpecialTokensOption = None,
    max_seq_length: LengthOption = 2048,
    input_packing_config: PackingOption = "full",
    packing_boundary: PackingBoundaryOption = "jsonl",
    attention_boundary: AttentionBoundaryOption = "jsonl",
    prompt_keyword: PromptKeywordOption = "prompt",
    completion_keyword: CompletionKeywordOption = "completion",
    prompt_prefix: PrefixOption = "",
    prompt_postfix: PostfixOption = "",
    disable_space_separator: SpaceOption = False,
    keep_prompt_only_sequences: KeepPromptsOption = False,
    categories_path: CategoriesOption = None,
    apply_chat_template: ChatOption = False,
    num_training_splits: TrainingSplitsOption = None,
    dev_ratio: DevRatioOption = None,
    num_dev_splits: DevSplitsOption = None,
    test_ratio: TestRatioOption = None,
    num_test_splits: TestSplitsOption = None,
    shuffle: ShuffleOption = "False",
    seed: SeedOption = 0,
    do_not_balance_hdf5: BalanceOption = False,
    keep_split_jsonls: KeepSplitsOption = False,
    num_workers: WorkersOption = None,
    engine: EngineOption = "local",
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    r"""Shuffle, split, tokenize and pack text into a folder that training reads.

    The same command again goes on where an interrupted one was.

    Examples:
      samba-port data-prep pipeline --input_path=corpus.jsonl --output_path=out --pretrained_tokenizer=./tokenizer
      samba-port data-prep pipeline --input_path=corpus.jsonl --pretrained_tokenizer=./tokenizer \
        --max_seq_length=1024 --input_packing_config=greedy::drop --shuffle=on_RAM --dev_ratio=0.1
      samba-port data-prep pipeline --input_path=texts/ --pretrained_tokenizer=./tokenizer --shuffle=large_file
    """
    return _run_pipeline(locals())


def data_prep(
    input_path: InputOption,
    pretrained_tokenizer: TokenizerOption,
    output_path: OutputOption = None,
    log_file_path: LogOption = None,
    overwrite_output_path: OverwriteOption = False,
    ignore_input_format_error: IgnoreOption = False,
    special_tokens_dict: SpecialTokensOption = None,
    max_seq_length: LengthOption = 2048,
    input_packing_config: PackingOption = "full",
    packing_boundary: PackingBoundaryOption = "jsonl",
    attention_boundary: AttentionBoundaryOption = "jsonl",
    prompt_keyword: PromptKeywordOption = "prompt",
    completion_keyword: CompletionKeywordOption = "completion",
    prompt_prefix: PrefixOption = "",
    prompt_postfix: PostfixOption = "",
    disable_space_separator: SpaceOption = False,
    keep_prompt_only_sequences: KeepPromptsOption = False,
    categories_path: CategoriesOption = None,
    apply_chat_template: ChatOption = False,
    silent: SilentOption = False,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    r"""Tokenize and pack one file of text into one HDF5 file.

    Examples:
      samba-port data-prep data_prep --input_path=corpus.jsonl --pretrained_tokenizer=./tokenizer
      samba-port data-prep data_prep --input_path=corpus.txt --output_path=out/corpus.hdf5 \
        --pretrained_tokenizer=./tokenizer --max_seq_length=1024
      samba-port data-prep data_prep --input_path=pairs.jsonl --pretrained_tokenizer=./tokenizer \
        --input_packing_config=single::truncate_left --prompt_prefix="Q: "
    """
    return _run_data_prep(locals())


def decode(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An HDF5 file of data-prep.")],
    pretrained_tokenizer: Annotated[
        str | None,
        typer.Option(
            "--pretrained_tokenizer",
            metavar="FOLDER",
            help="The tokenizer that made the file; tokenizer/ beside it if left out.",
        ),
    ] = None,
    first: Annotated[
        int, typer.Option("--first", metavar="N", min=1, help="Number of the first sequence.")
    ] = 1,
    count: Annotated[
        int | None,
        typer.Option("--count", metavar="N", min=1, help="How many sequences; all if left out."),
    ] = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Print sequences as text, and what each token is to training.

    Examples:
      samba-port data-prep decode out/train_1_of_32.hdf5
      samba-port data-prep decode out/train_1_of_32.hdf5 --first 10 --count 2
      samba-port data-prep decode corpus.hdf5 --pretrained_tokenizer=./tokenizer --json - | jq .sequences
    """
    from samba_onnx.tools.data_prep.data_text import decoded_text
    from samba_onnx.tools.data_prep.decoding import decode as decoded
    from samba_onnx.tools.data_prep.tokenizer_record import load_tokenizer

    refuse_overwriting(file, outputs={"--json": json})
    display = Display(json, quiet, verbose)
    folder = pretrained_tokenizer or str(Path(file).parent / "tokenizer")
    tokenizer, _ = load_tokenizer(folder)
    sequences = decoded(Path(file), tokenizer, first, count)
    if json is not None:
        # One document has to hold all of them.
        kept = tuple(sequences)
        display.show(
            f"{len(kept)} sequences of {file}",
            lambda rows: decoded_text(kept),
            {"schema_version": 1, "path": file, "sequences": kept},
        )
        return EXIT_YES
    for sequence in sequences:  # each as it comes: there may be millions
        shown = decoded_text([sequence])
        display.show(f"sequence {sequence.number}", lambda _, shown=shown: shown, None)  # type: ignore[misc]  # mypy infers no default
    return EXIT_YES


def _run_pipeline(words: dict[str, Any]) -> int:
    """Run ``pipeline`` with its options by name."""
    from samba_onnx.tools.data_prep.data_progress import DataProgress
    from samba_onnx.tools.data_prep.data_text import metrics_table
    from samba_onnx.tools.data_prep.preparation_options import (
        DatasetOptions,
        EngineKind,
        Shuffle,
        SplitOptions,
        choice,
        default_workers,
    )
    from samba_onnx.tools.data_prep.runs import pipeline as prepare
    from samba_onnx.tools.data_prep.tokenizer_record import load_tokenizer

    _refuse_overwriting(words)
    numbers = (
        "num_training_splits",
        "num_dev_splits",
        "num_test_splits",
        "dev_ratio",
        "test_ratio",
    )
    options = DatasetOptions(
        preparation=_preparation(words),
        splits=SplitOptions(**{name: words[name] for name in numbers}),
        shuffle=choice(Shuffle, "--shuffle", words["shuffle"]),
        seed=words["seed"],
        balance=not words["do_not_balance_hdf5"],
        keep_split_jsonls=words["keep_split_jsonls"],
        num_workers=default_workers() if words["num_workers"] is None else words["num_workers"],
        engine=choice(EngineKind, "--engine", words["engine"]),
        overwrite_output_path=words["overwrite_output_path"],
        log_file_path=_path(words["log_file_path"]),
    )
    with DataProgress("samba-port data-prep pipeline", words["quiet"]) as progress:
        progress.begin("loading the tokenizer")
        tokenizer, config = load_tokenizer(
            words["pretrained_tokenizer"], words["special_tokens_dict"]
        )
        source, output = Path(words["input_path"]), _path(words["output_path"])
        result = prepare(source, output, tokenizer, config, options, progress)
    headline = _headline(result.metrics.values(), result.output)
    _display(words).show(
        headline,
        lambda rows: metrics_table(headline, result.metrics),
        {"schema_version": 1, "headline": headline, "result": result},
    )
    return EXIT_YES


def _run_data_prep(words: dict[str, Any]) -> int:
    """Run ``data_prep`` with its options by name."""
    from samba_onnx.tools.data_prep.data_progress import DataProgress
    from samba_onnx.tools.data_prep.data_text import metrics_table
    from samba_onnx.tools.data_prep.single_file import data_prep as prepare
    from samba_onnx.tools.data_prep.tokenizer_record import load_tokenizer

    _refuse_overwriting(words)
    options, silent = _preparation(words), words["silent"]
    with DataProgress(
        "samba-port data-prep data_prep", words["quiet"] or silent, silent
    ) as progress:
        progress.begin("loading the tokenizer")
        tokenizer, _ = load_tokenizer(words["pretrained_tokenizer"], words["special_tokens_dict"])
        result = prepare(
            Path(words["input_path"]),
            _path(words["output_path"]),
            tokenizer,
            options,
            progress,
            overwrite_output_path=words["overwrite_output_path"],
            log_file_path=_path(words["log_file_path"]),
        )
    headline = _headline([result.metrics], result.output)
    if not silent:
        _display(words).show(
            headline,
            lambda rows: metrics_table(headline, {"": result.metrics}),
            {"schema_version": 1, "headline": headline, "result": result},
        )
    return EXIT_YES


def _refuse_overwriting(words: dict[str, Any]) -> None:
    """Refuse a log or an answer that would go into a text or a list of categories."""
    source = Path(words["input_path"])
    sources = [*source.iterdir()] if source.is_dir() else [source]
    texts = [*map(str, sources), words["categories_path"]]
    outputs = {f"--{name}": words[name] for name in ("output_path", "log_file_path", "json")}
    refuse_overwriting(*(text for text in texts if text is not None), outputs=outputs)


def _preparation(words: dict[str, Any]) -> PreparationOptions:
    """Return what both commands let the user choose."""
    from samba_onnx.tools.data_prep.preparation_options import (
        PackingConfig,
        PreparationOptions,
        UnitBoundary,
        choice,
    )

    same = (
        "max_seq_length",
        "prompt_keyword",
        "completion_keyword",
        "prompt_prefix",
        "prompt_postfix",
        "keep_prompt_only_sequences",
        "apply_chat_template",
        "ignore_input_format_error",
    )
    return PreparationOptions(
        **{name: words[name] for name in same},
        packing=PackingConfig.parse(words["input_packing_config"]),
        packing_boundary=choice(UnitBoundary, "--packing_boundary", words["packing_boundary"]),
        attention_boundary=choice(
            UnitBoundary, "--attention_boundary", words["attention_boundary"]
        ),
        space_separator=not words["disable_space_separator"],
        categories=_categories(words["categories_path"]),
    )


def _categories(path: str | None) -> tuple[str, ...] | None:
    """Read the names of categories.

    Raises:
        UsageError: The file is no JSON list of texts.
    """
    if path is None:
        return None
    try:
        names = json_format.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--categories_path {path}: cannot be read: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f'--categories_path {path}: expected a JSON list of names, as ["news"]')
    return tuple(names)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _display(words: dict[str, Any]) -> Display:
    return Display(words["json"], words["quiet"], words["verbose"])


def _headline(metrics: Any, output: str) -> str:
    from samba_onnx.report.units import count_text

    total = sum(metrics, start=_nothing())
    articles = count_text(total.articles, "article")
    return f"{articles} became {count_text(total.sequences, 'sequence')} in {output}"


def _nothing() -> Metrics:
    from samba_onnx.tools.data_prep.metrics import Metrics

    return Metrics()
