"""What commands do with what a user names, by its name and their options; what does not go together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from samba_onnx.compiling.model_sources import (
    configuration_file,
    is_configuration,
    is_factory,
    is_torch_model,
)
from samba_onnx.compiling.option import Front
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.errors import UsageError

__all__ = [
    "default_destination",
    "refuse_annotated",
    "refuse_model",
    "refuse_other_level",
    "refuse_other_options",
    "refuse_pef",
    "refuse_translations",
    "target_text",
]

_MODELS: Final = (".onnx", ".pb", ".onnxtxt", ".textproto")


def target_text(options: CompileOptions) -> str:
    """Return the target that ``--target`` and ``--kernel-looping`` name together.

    Args:
        options: As the command line states them, with a target by name or path.
    """
    target = os.fspath(options.device.target)  # type: ignore[arg-type]
    if not options.device.kernel_looping:
        return target
    from samba_onnx.passes.targets import LOOPING, with_condition

    return with_condition(target, LOOPING)


def default_destination(model: str) -> str:
    """Return where a PEF goes without being told: beside a file of a model, else into the working folder.

    Args:
        model: A file, a factory, or a Hugging Face configuration, whose folder has the model's name.
    """
    if is_factory(model):
        return f"{model.rpartition(':')[2].rpartition('.')[2]}.pef"
    if is_configuration(model):
        return f"{configuration_file(model).resolve().parent.name or 'model'}.pef"
    return str(Path(model).with_suffix(".pef"))


def refuse_other_options(model: str, options: CompileOptions, *, writes: bool = True) -> None:
    """Refuse options that do not count for a model, or for its level.

    Args:
        model: A file or a factory.
        options: As the command line states them.
        writes: Whether a PEF is written.

    Raises:
        UsageError: One is stated.
    """
    refuse_other_level(options)
    front = Front.TORCH if is_torch_model(model) else Front.ONNX
    options.refuse_other(front, writes=writes)


def refuse_other_level(options: CompileOptions) -> None:
    """Refuse rules of fusion for another level than o1.

    Args:
        options: As the command line states them.

    Raises:
        UsageError: One is stated.
    """
    sections = options.sections
    if sections.level != "o1":
        for flag, stated in (
            ("--optimization-rules", sections.optimization_rules),
            ("--use-o1-default-rules", sections.default_rules),
        ):
            if stated:
                raise UsageError(f"{flag} counts at --level o1, and the level is {sections.level}")


def refuse_translations(model: str, files: Sequence[str] | None) -> None:
    """Refuse translations of torch's operators for a model that has none.

    Args:
        model: What is compared.
        files: Files that register translations; None for none.

    Raises:
        UsageError: There are such files, and the model is in ONNX.
    """
    refuse_other_options(model, CompileOptions.of(translations=tuple(files or ())))


def refuse_annotated(model: str, output: str | None) -> None:
    """Refuse to annotate what is no file that could be written again.

    Args:
        model: What is converted.
        output: The file to write; None if nobody asked for one.

    Raises:
        UsageError: The model is one of PyTorch's.
    """
    if output is not None and is_torch_model(model):
        raise UsageError(
            "--annotated is for ONNX models: what torch exports is no file that could be written again"
        )


def refuse_model(path: str, command: str) -> None:
    """Refuse a model where a PEF is expected.

    Told by the name alone: what is in the file of another name, the reader of PEFs says.

    Args:
        path: What the user named.
        command: The command's name.

    Raises:
        UsageError: It names an ONNX model, a PyTorch model, or a report in JSON.
    """
    if path.endswith(".json"):
        raise UsageError(
            f"{path} is a JSON document, and {command} reads a PEF: diff reads reports"
        )
    if not is_torch_model(path) and not path.endswith(_MODELS):
        return
    what = "a factory" if is_factory(path) else "a PyTorch model" if is_torch_model(path) else ""
    raise UsageError(
        f"{path} is {what or 'an ONNX model'}, and {command} reads a PEF: samba-port analyze {path} "
        f"reports on the model, samba-port convert {path} makes a PEF of it"
    )


def refuse_pef(path: str, command: str) -> None:
    """Refuse a PEF where a model is expected.

    Args:
        path: What the user named.
        command: The command's name.

    Raises:
        UsageError: It names a PEF.
    """
    if path.endswith(".pef"):
        raise UsageError(
            f"{path} is a PEF, and {command} reads a model: samba-port inspect {path} reports on it, "
            f"samba-port run {path} runs it"
        )
