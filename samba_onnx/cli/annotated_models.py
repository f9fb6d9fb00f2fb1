"""``--annotated`` of ``samba-port convert`` and ``analyze``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samba_onnx.cli.progress import Activity
from samba_onnx.errors import UsageError
from samba_onnx.workflows.model_sources import is_torch_model


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


def write_annotated(
    model: str,
    output: str,
    activity: Activity,
    *,
    dims: Any,
    input_shapes: Any,
    keep_dynamic: bool,
    float16: str | None,
    precision: str | None,
    constants: Any,
    legalise: str,
    no_legalise: Sequence[str],
    optimization_rules: str | None = None,
    default_rules: bool | None = None,
    **choices: Any,
) -> None:
    """Write a model with what became of each of its nodes.

    Args:
        model: Path of the ONNX model.
        output: The file to write.
        activity: Shows what goes on.
        dims: Sizes of dynamic dimensions; of several, the first.
        input_shapes: Shapes of inputs.
        keep_dynamic: Whether other dimensions stay dynamic.
        float16: The type in which float16 is computed.
        precision: In which types others compute.
        constants: Inputs that are fixed as constants, with their values.
        legalise: ``auto``, ``all`` or ``float64``.
        no_legalise: Rules of legalisation that are not applied.
        optimization_rules: A file of fusion rules.
        default_rules: Whether those of the target count.
        **choices: Target, level and placement, as ``workflows.choices.chosen_settings`` takes them.

    Raises:
        SambaError: As ``samba_onnx.workflows.annotating.annotate``.
    """
    from samba_onnx.passes.planning.fusion.choosing import FusionOptions
    from samba_onnx.workflows.annotating import annotate
    from samba_onnx.workflows.choices import chosen_options, chosen_settings, legalisation_options

    activity.step("annotate")
    rules = legalisation_options(legalise, no_legalise)
    fusion = FusionOptions(optimization_rules, default_rules)
    settings = chosen_settings(progress=activity.step, legalisation=rules, fusion=fusion, **choices)
    options = chosen_options(settings.target, dims, input_shapes, keep_dynamic, float16, precision)
    annotate(model, output, settings, options[0], constants)
