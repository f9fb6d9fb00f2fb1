"""``samba-port verify``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES
from samba_onnx.cli.options import (
    CustomOpsOption,
    EngineOption,
    JsonOption,
    QuietOption,
    SeedOption,
    ThreadsOption,
    TranslationsOption,
    VerboseOption,
)
from samba_onnx.cli.progress import Activity
from samba_onnx.cli.stored_inputs import AtolOption, InputFileOption, RtolOption
from samba_onnx.compiling.model_choices import refuse_model, refuse_translations
from samba_onnx.compiling.model_sources import is_torch_model
from samba_onnx.compiling.torch_loading import verify_torch
from samba_onnx.errors import UsageError
from samba_onnx.facts.defaults import DEFAULT_ENGINE

if TYPE_CHECKING:
    from samba_onnx.comparing.trials import Verification
    from samba_onnx.tools.verify.verify_report import OutputErrorReport, VerificationReport


def verify(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] PEF",
            help="The original model, in ONNX or as convert takes one of PyTorch, and the PEF; a PEF alone is "
            "tested with the sample inside it.",
        ),
    ],
    input_file: InputFileOption = None,
    seed: SeedOption = 0,
    rtol: RtolOption = None,
    atol: AtolOption = None,
    threads: ThreadsOption = None,
    engine: EngineOption = DEFAULT_ENGINE,
    custom_ops: CustomOpsOption = None,
    translations: TranslationsOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Compare the original with the PEF, on one engine.

    The PEF runs on the emulator, on three sets of seeded inputs, with its weights mapped and then
    packed. Integers come from all of the range that the model shows. What differs on onnxruntime
    and agrees on the other engine points to onnxruntime, not to the compiler.

    Examples:
      samba-port verify model.onnx model.pef
      samba-port verify model.onnx model.pef --input x=x.npy --rtol 1e-5
      samba-port verify model.onnx model.pef --engine reference
      samba-port verify my_project.models:resnet resnet.pef
      samba-port verify model.pef

    Exit status 1 means that an output is beyond the tolerance.
    """
    if len(files) > 2:
        raise UsageError(f"expected MODEL and PEF, or a PEF alone; got {len(files)} files")
    if len(files) == 1 and input_file:
        raise UsageError("--input needs MODEL and PEF: the sample inside a PEF has its own inputs")
    _refuse_wrong_files(files)
    of_torch = len(files) == 2 and is_torch_model(files[0])
    if of_torch:
        _refuse_options_of_onnx(input_file, seed, custom_ops)
    refuse_translations(files[0], translations)
    refuse_overwriting(*files, outputs={"--json": json})

    from samba_onnx.comparing.residents import refuse_missing_weights
    from samba_onnx.comparing.verification import self_test
    from samba_onnx.comparing.verification import verify as compare_with_original
    from samba_onnx.pef import load_pef
    from samba_onnx.runtime.input_files import all_inputs
    from samba_onnx.tools.verify.verify_text import verification_text

    with Activity(quiet) as activity, load_pef(files[-1]) as pef:
        refuse_missing_weights(
            pef,
            "samba-port compare takes the factory and the PEF; samba-port run takes --weights",
        )
        activity.step("compare")
        if of_torch:
            verification = verify_torch(
                files[0],
                pef,
                activity.step,
                rtol=rtol,
                atol=atol,
                threads=threads,
                engine=engine,
                translations=translations,
            )
        elif len(files) == 1:
            verification = self_test(
                pef,
                rtol=rtol,
                atol=atol,
                threads=threads,
                engine=engine,
                custom_ops=custom_ops or (),
            )
        else:
            verification = compare_with_original(
                files[0],
                pef,
                inputs=all_inputs(pef, input_file),
                seed=seed,
                rtol=rtol,
                atol=atol,
                threads=threads,
                engine=engine,
                custom_ops=custom_ops or (),
            )
    report = _report(verification, Path(files[-1]).name)
    display = Display(json, quiet, verbose)
    display.show(report.headline, lambda rows: verification_text(report, rows), report)
    return EXIT_YES if report.passed else EXIT_NO


def _refuse_wrong_files(files: list[str]) -> None:
    """Refuse a PEF and a model in the wrong order, and anything but a PEF as the last one."""
    if len(files) == 2 and files[0].endswith(".pef"):
        raise UsageError(
            f"{files[0]} is a PEF: the model comes first, as in samba-port verify model.onnx model.pef"
        )
    refuse_model(files[-1], "verify")


def _refuse_options_of_onnx(
    input_file: list[str] | None, seed: int, custom_ops: list[str] | None
) -> None:
    """Refuse what has no effect on a PyTorch model, which runs on its example inputs."""
    if input_file or seed or custom_ops:
        raise UsageError(
            "--input, --seed and --custom-ops are for ONNX models: a PyTorch model is compared on "
            "its example inputs"
        )


def _report(verification: Verification, pef: str) -> VerificationReport:
    """Put the answer together."""
    from samba_onnx.report.units import count_text, printable
    from samba_onnx.tools.verify.verify_report import OutputErrorReport, VerificationReport

    def known(error: float) -> float | None:
        # JSON has no infinite numbers.
        return error if math.isfinite(error) else None

    outputs = tuple(
        OutputErrorReport(
            name=output.name,
            dtype=output.type,
            shape=output.shape,
            max_absolute_error=known(output.max_absolute_error),
            max_relative_error=known(output.max_relative_error),
            tolerance=output.tolerance,
            of_allowed=known(output.of_allowed),
            run=output.run,
            mismatched=output.mismatched,
            elements=output.elements,
            passed=output.passed,
            steps=None if output.steps is None else known(output.steps),
        )
        for output in verification.outputs
    )
    what = {
        "original": f"the original on {verification.engine}",
        "torch": "the module in eager torch",
    }.get(verification.against, "the sample inside it")
    failed = sum(not output.passed for output in outputs)
    if failed:
        verdict = f"{failed} of {count_text(len(outputs), 'output')} differ from {what}"
    else:
        verb = "agrees" if len(outputs) == 1 else "agree"
        verdict = f"{count_text(len(outputs), 'output')} {verb} with {what}"
    return VerificationReport(
        headline=f"{printable(pef)}: {verdict}; {_distance_text(outputs)}",
        passed=verification.passed,
        against=verification.against,
        rtol=verification.rtol,
        atol=verification.atol,
        runs=verification.runs,
        outputs=outputs,
        engine=verification.engine,
        advice=_advice(verification),
        other_version=verification.other_version,
        departure=verification.departure,
    )


def _distance_text(outputs: Sequence[OutputErrorReport]) -> str:
    """Return how far outputs are from those expected: quantised ones in steps, others by their magnitude."""
    quantised = [output.steps for output in outputs if output.steps is not None]
    others = [output.max_relative_error or 0.0 for output in outputs if output.steps is None]
    parts = (
        [f"largest relative error {max(others, default=0.0):.2g}"]
        if others or not quantised
        else []
    )
    if quantised:
        count = max(quantised)
        noun = "step" if count == 1 else "steps"
        parts.append(f"quantised numbers at most {count:.3g} {noun} apart")
    return "; ".join(parts)


def _advice(verification: Verification) -> str:
    """Return how to tell an engine's fault from the compiler's, after outputs of the same model differed."""
    if verification.passed:
        return ""
    if verification.other_version:
        return "convert the model again: the PEF is of another version of it"
    engine = verification.engine
    if engine == DEFAULT_ENGINE:
        return (
            "to tell an engine's fault from the compiler's, run it again with --engine reference, "
            f"which is slow and exact: if the outputs agree there, {engine} computes this graph "
            "otherwise; if they differ there, too, the compiler does"
        )
    return (
        f"{engine} shares no kernel with {DEFAULT_ENGINE}: if both differ, the compiler is at fault"
    )
