"""``samba-port tokens``."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from samba_onnx.cli.compile_options import takes_options
from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_YES
from samba_onnx.cli.options import JsonOption, QuietOption, VerboseOption
from samba_onnx.cli.progress import Activity
from samba_onnx.compiling.model_sources import is_configuration, is_torch_model
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.errors import UsageError

_STATED: Final = (
    "target", "kernel_looping", "level", "host", "float16", "precision", "n_chips", "tensor_parallel",
)  # fmt: skip
"""Options of a compilation that change how fast tokens come; sizes are this command's own."""

LanguageModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="The config.json of a causal language model of Hugging Face, or its folder, of which no weight is read; "
        "or an ONNX model with a cache.",
    ),
]
BatchOption = Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Texts at a time.")]
PromptOption = Annotated[
    int | None,
    # Of one token a prompt would be the other program.
    typer.Option(
        "--prompt",
        metavar="N",
        min=2,
        help="Tokens of a prompt; 512, or half of what the model takes.",
    ),
]
ContextOption = Annotated[
    int | None,
    typer.Option(
        "--context",
        metavar="N",
        min=2,
        help="Tokens that the cache has room for, prompt and answer; 4096, or what the model takes.",
    ),
]


@takes_options(only=_STATED, settings=False)
def tokens(
    model: LanguageModelArgument,
    options: CompileOptions,
    batch: BatchOption = 1,
    prompt: PromptOption = None,
    context: ContextOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Model how fast a language model answers.

    Time to the first token, tokens per second, bytes of cache per token. Reading a prompt and writing a token are two programs, which are planned apart: the first computes, the second
    waits for memory. Nothing runs and no weight is read, so that a model may be larger than this machine.

    Examples:
      samba-port tokens Llama-3-8B/config.json --n-chips 8
      samba-port tokens Llama-3-8B --n-chips 8 --batch 16 --prompt 1024 --context 8192
      samba-port tokens decoder_with_past.onnx --json - | jq .tokens_per_second
    """
    refuse_overwriting(model, outputs={"--json": json})
    if is_torch_model(model) and not is_configuration(model):
        raise UsageError(
            f"{model}: a factory or a .pt2 file does not say what its cache is; give the config.json of Hugging Face, "
            "or an ONNX model with a cache"
        )

    from samba_onnx.tools.tokens.text_generators import open_generator
    from samba_onnx.tools.tokens.tokens_report import tokens_report
    from samba_onnx.tools.tokens.tokens_text import tokens_text

    with Activity(quiet) as activity:
        source = open_generator(model, activity.step)
        # Before anything is planned, which takes long: sizes that contradict each other are told at once.
        sizes = source.sizes(batch, prompt, context)
        activity.step("plan the prompt")
        first = source.prompt(sizes, options)
        activity.step("plan a token")
        each = source.token(sizes, options)
        report = tokens_report(source, sizes, first, each)
    Display(json, quiet, verbose).show(
        report.headline, lambda rows: tokens_text(report, rows), report
    )
    return EXIT_YES
