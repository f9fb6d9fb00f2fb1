"""``--annotated`` of ``samba-port convert`` and ``analyze``."""

from __future__ import annotations

from samba_onnx.cli.progress import Activity
from samba_onnx.compiling.model_sources import is_torch_model
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.errors import UsageError


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


def write_annotated(model: str, output: str, options: CompileOptions, activity: Activity) -> None:
    """Write a model with what became of each of its nodes.

    Args:
        model: Path of the ONNX model.
        output: The file to write.
        options: What the user decides; of several sizes, the first counts.
        activity: Shows what goes on.

    Raises:
        SambaError: As ``samba_onnx.compiling.annotating.annotate``.
    """
    from samba_onnx.compiling.annotating import annotate

    activity.step("annotate")
    annotate(model, output, options, activity.step)
