"""Options of ``samba-port data-prep``, in the spellings of SambaNova's own data preparation."""

from __future__ import annotations

from typing import Annotated

import typer

ARTICLES = "From lines to articles"
SEQUENCES = "From articles to sequences"
FILES = "Files"
SPLITS = "Splits and shuffling"

InputOption = Annotated[
    str,
    typer.Option(
        "--input_path",
        "--input_file_path",
        metavar="PATH",
        help="A .jsonl or .txt file; for pipeline also a folder of files of one of these kinds.",
        rich_help_panel=FILES,
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output_path",
        metavar="PATH",
        help="The folder of pipeline, or the .hdf5 file of data_prep; beside the input if left out.",
        rich_help_panel=FILES,
    ),
]
LogOption = Annotated[
    str | None,
    typer.Option(
        "--log_file_path",
        metavar="FILE",
        help="The log; logs.log in the output folder if left out.",
        rich_help_panel=FILES,
    ),
]
OverwriteOption = Annotated[
    bool,
    typer.Option(
        "--overwrite_output_path",
        help="Replace a dataset that is there.",
        rich_help_panel=FILES,
    ),
]
IgnoreOption = Annotated[
    bool,
    typer.Option(
        "--ignore_input_format_error",
        help="Skip lines that cannot be read, count them, and keep them in json_error_log/.",
        rich_help_panel=FILES,
    ),
]
TokenizerOption = Annotated[
    str,
    typer.Option(
        "--pretrained_tokenizer",
        metavar="FOLDER",
        help="A tokenizer of transformers: a folder, or a name that transformers finds.",
        rich_help_panel=ARTICLES,
    ),
]
SpecialTokensOption = Annotated[
    str | None,
    typer.Option(
        "--special_tokens_dict",
        metavar="JSON",
        help='Special tokens to add to the tokenizer, as {"pad_token": "<pad>"}.',
        rich_help_panel=ARTICLES,
    ),
]
LengthOption = Annotated[
    int,
    typer.Option(
        "--max_seq_length",
        metavar="N",
        help="Tokens of a sequence.",
        rich_help_panel=SEQUENCES,
    ),
]
PackingOption = Annotated[
    str,
    typer.Option(
        "--input_packing_config",
        metavar="PACKING",
        help="full: sequences are filled, articles go on in the next one; greedy::OVERFLOW: as many "
        "whole articles as fit; single::OVERFLOW: one article. OVERFLOW is what becomes of an article "
        "that is too long: drop, truncate_left or truncate_right.",
        rich_help_panel=SEQUENCES,
    ),
]
PackingBoundaryOption = Annotated[
    str,
    typer.Option(
        "--packing_boundary",
        metavar="BOUNDARY",
        help="What is packed as an article: a whole line (jsonl), or each prompt_completion_pair.",
        rich_help_panel=SEQUENCES,
    ),
]
AttentionBoundaryOption = Annotated[
    str,
    typer.Option(
        "--attention_boundary",
        metavar="BOUNDARY",
        help="What ends with a separator: a line (jsonl), or each prompt_completion_pair.",
        rich_help_panel=SEQUENCES,
    ),
]
PromptKeywordOption = Annotated[
    str,
    typer.Option(
        "--prompt_keyword",
        metavar="KEY",
        help="Key of prompts.",
        rich_help_panel=ARTICLES,
    ),
]
CompletionKeywordOption = Annotated[
    str,
    typer.Option(
        "--completion_keyword",
        metavar="KEY",
        help="Key of completions.",
        rich_help_panel=ARTICLES,
    ),
]
PrefixOption = Annotated[
    str,
    typer.Option(
        "--prompt_prefix",
        metavar="TEXT",
        help="Text before every prompt.",
        rich_help_panel=ARTICLES,
    ),
]
PostfixOption = Annotated[
    str,
    typer.Option(
        "--prompt_postfix",
        metavar="TEXT",
        help="Text after every prompt.",
        rich_help_panel=ARTICLES,
    ),
]
SpaceOption = Annotated[
    bool,
    typer.Option(
        "--disable_space_separator",
        help="Leave the spaces between prompt and completion as they are.",
        rich_help_panel=ARTICLES,
    ),
]
KeepPromptsOption = Annotated[
    bool,
    typer.Option(
        "--keep_prompt_only_sequences",
        help="Keep pairs and sequences without a completion.",
        rich_help_panel=SEQUENCES,
    ),
]
CategoriesOption = Annotated[
    str | None,
    typer.Option(
        "--categories_path",
        metavar="FILE",
        help="JSON list of names: write category_ids by the category of each pair.",
        rich_help_panel=ARTICLES,
    ),
]
ChatOption = Annotated[
    bool,
    typer.Option(
        "--apply_chat_template",
        help="Put pairs, or messages with roles, into the tokenizer's chat template.",
        rich_help_panel=ARTICLES,
    ),
]
SilentOption = Annotated[
    bool, typer.Option("--silent", help="Print nothing.", rich_help_panel="Output")
]
TrainingSplitsOption = Annotated[
    int | None,
    typer.Option(
        "--num_training_splits",
        metavar="N",
        help="Files to train on; 32 below 10 GB of text, 128 below 100 GB, else 256.",
        rich_help_panel=SPLITS,
    ),
]
DevRatioOption = Annotated[
    float | None,
    typer.Option(
        "--dev_ratio",
        metavar="PART",
        help="Part of the files that is for evaluation.",
        rich_help_panel=SPLITS,
    ),
]
DevSplitsOption = Annotated[
    int | None,
    typer.Option(
        "--num_dev_splits",
        metavar="N",
        help="Files to evaluate on.",
        rich_help_panel=SPLITS,
    ),
]
TestRatioOption = Annotated[
    float | None,
    typer.Option(
        "--test_ratio",
        metavar="PART",
        help="Part of the files that stays text, for tests.",
        rich_help_panel=SPLITS,
    ),
]
TestSplitsOption = Annotated[
    int | None,
    typer.Option(
        "--num_test_splits",
        metavar="N",
        help="Files that stay text.",
        rich_help_panel=SPLITS,
    ),
]
ShuffleOption = Annotated[
    str,
    typer.Option(
        "--shuffle",
        metavar="HOW",
        help="False; on_RAM; or large_file, for text that does not fit into memory.",
        rich_help_panel=SPLITS,
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        help="Seed of the shuffling.",
        rich_help_panel=SPLITS,
    ),
]
BalanceOption = Annotated[
    bool,
    typer.Option(
        "--do_not_balance_hdf5",
        help="Leave files with different numbers of sequences.",
        rich_help_panel=SPLITS,
    ),
]
KeepSplitsOption = Annotated[
    bool,
    typer.Option(
        "--keep_split_jsonls",
        help="Leave the text of each file under splits/.",
        rich_help_panel=SPLITS,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--num_workers",
        metavar="N",
        help="Processes; as many as there are cores, but 16 at most, if left out.",
        rich_help_panel=FILES,
        show_default=False,
    ),
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="local: processes of this machine; ray: a Ray cluster whose machines share the folders.",
        rich_help_panel=FILES,
    ),
]
