"""What ``convert`` and ``analyze`` do with a model, read from their options; what does not go together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samba_onnx.cli.host_profiles import host_profile
from samba_onnx.cli.options import parse_input_shapes
from samba_onnx.errors import UsageError
from samba_onnx.workflows.model_sources import (
    configuration_file,
    is_configuration,
    is_factory,
    is_torch_model,
)

if TYPE_CHECKING:
    from samba_onnx.passes.planning.legalising import LegalisationOptions


def chosen_target(target: str, kernel_looping: bool) -> str:
    """Return the target that ``--target`` and ``--kernel-looping`` name together.

    Args:
        target: A name or path, with or without conditions.
        kernel_looping: Whether the device is to loop over equal sections.
    """
    if not kernel_looping:
        return target
    from samba_onnx.workflows.choices import looped_target

    return looped_target(target)


def device_choices(target: str, level: str, placement: str, host: str) -> dict[str, Any]:
    """Return what a model is converted for, as all functions that convert take it.

    Args:
        target: The device.
        level: ``o0``, ``o1`` or ``o3``.
        placement: ``optimal`` or ``strict``.
        host: The CPU, as ``--host`` names it.

    Raises:
        UsageError: There is no such profile of a host.
    """
    profile = host_profile(host)
    return {"target": target, "level": level, "placement": placement, "host": profile}


def legalisation_choices(legalise: str, no_legalise: list[str] | None) -> LegalisationOptions:
    """Return what the options say about rules.

    Args:
        legalise: ``auto``, ``all`` or ``float64``.
        no_legalise: Rules that are left out.

    Raises:
        UsageError: There is no such rule or choice.
    """
    from samba_onnx.workflows.choices import legalisation_options

    return legalisation_options(legalise, no_legalise or ())


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


def stated_shapes(
    texts: list[str] | None, files: list[str] | None
) -> dict[str, tuple[int | str | None, ...]]:
    """Return the shapes of inputs that options and sample inputs state.

    Args:
        texts: As ``x=1,3,224,224``, each.
        files: Arrays, as ``--sample-input`` takes them.

    Raises:
        UsageError: One is malformed, or two contradict each other.
    """
    shapes = parse_input_shapes(texts)
    if files:
        from samba_onnx.cli.arrays import read_shapes

        for name, shape in read_shapes(files).items():
            stated = shapes.get(name, shape)
            if len(stated) != len(shape) or any(
                isinstance(size, int) and size != length
                for size, length in zip(stated, shape, strict=True)
            ):
                raise UsageError(
                    f"--sample-input: {name!r} has shape {list(shape)} there, and "
                    f"{','.join('?' if size is None else str(size) for size in stated)} in "
                    "--input-shape"
                )
            shapes[name] = shape
    return shapes


def refuse_stated_shapes(stated: bool) -> None:
    """Refuse options that are for ONNX models.

    Args:
        stated: Whether there is any.

    Raises:
        UsageError: There is one.
    """
    if stated:
        raise UsageError(
            "--dim, --input-shape, --sample-input, --keep-dynamic and --float16 are for ONNX models: "
            "sizes and types of a PyTorch model are those of its example inputs and weights"
        )


def refuse_constants(constants: Collection[str] | None) -> None:
    """Refuse to fix inputs of a PyTorch model, which is exported with what its function binds.

    Args:
        constants: Inputs that are fixed; empty or None for none.

    Raises:
        UsageError: There is one.
    """
    if constants:
        raise UsageError(
            "--constant is for ONNX models: of a PyTorch model, what is no tensor among its example inputs is a "
            "constant already, and a module around it can hold a tensor as a buffer"
        )


def refuse_libraries(libraries: list[str] | None) -> None:
    """Refuse libraries of custom operators for a PyTorch model.

    Args:
        libraries: Paths; empty or None for none.

    Raises:
        UsageError: There is one.
    """
    if libraries:
        raise UsageError(
            "--custom-ops is for ONNX models: an export of torch's has no such operators"
        )


def refuse_translations(model: str, files: Sequence[str] | None) -> None:
    """Refuse translations of torch's operators for a model that has none.

    Args:
        model: What is converted, analyzed or compared.
        files: Files that register translations; None for none.

    Raises:
        UsageError: There are such files, and the model is in ONNX.
    """
    if files and not is_torch_model(model):
        raise UsageError(
            "--translations is for PyTorch models; operators of an ONNX model's custom domains come with "
            "--custom-ops"
        )


def refuse_torch_options(train: bool) -> None:
    """Refuse to make an ONNX model a program that trains.

    Args:
        train: Whether it was to be one.

    Raises:
        UsageError: It was.
    """
    if train:
        raise UsageError(
            "--train takes package.module:factory; an ONNX model is trained from Python, with "
            "samba.from_onnx"
        )


def refuse_no_check(check: bool) -> None:
    """Refuse to leave out a comparison with torch that an ONNX model does not have.

    Args:
        check: Whether the comparison is made.

    Raises:
        UsageError: It is not.
    """
    if not check:
        raise UsageError(
            "--no-check is for PyTorch models; leave out the run of an ONNX model with --no-sample"
        )


def refuse_losses(indices: Sequence[int] | None, train: bool) -> None:
    """Refuse losses of a program that does not train.

    Args:
        indices: Outputs that training starts from; empty or None for none.
        train: Whether the program trains.

    Raises:
        UsageError: There is one, and it does not.
    """
    if indices and not train:
        raise UsageError("--loss-index is for --train: a program that only runs has no losses")


def spatial_mini_batches(model: str, batches: int | None) -> int:
    """Return the mini-batches of a run, 0 in section mapping; refuse them for an ONNX model.

    Args:
        model: A file or a factory.
        batches: What the user asked for; None for section mapping.

    Raises:
        UsageError: The model is in ONNX.
    """
    if batches is not None and not is_torch_model(model):
        raise UsageError(
            "--num-spatial-batches is for PyTorch models; an ONNX model is mapped spatially from "
            "Python, as the module that samba.from_onnx makes of it"
        )
    return batches or 0
