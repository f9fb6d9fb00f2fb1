"""What a Trainer of transformers is told, and what of it a loop that is written out can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.inlining import RefusedMethodError
from samba_onnx.tools.adapt.name_units import target_units, unit_of
from samba_onnx.tools.adapt.source import ProgramFile

_WITHOUT_EFFECT: Final = frozenset(
    {
        "output_dir", "overwrite_output_dir", "do_train", "run_name", "project", "report_to", "disable_tqdm",
        "log_level", "log_level_replica", "log_on_each_node", "logging_dir", "logging_strategy", "logging_steps",
        "logging_first_step", "logging_nan_inf_filter", "save_strategy", "save_steps", "save_total_limit",
        "save_only_model", "save_safetensors", "use_cpu", "no_cuda", "per_device_eval_batch_size",
        "dataloader_pin_memory", "dataloader_num_workers", "dataloader_persistent_workers",
        "dataloader_prefetch_factor", "remove_unused_columns", "skip_memory_metrics", "eval_steps",
        "evaluation_steps", "hub_token", "hub_model_id", "metric_for_best_model", "greater_is_better",
    }
)  # fmt: skip
"""Arguments that say nothing of what a step computes: of the host, of logs and of files."""
_WRITTEN: Final = frozenset(
    {
        "per_device_train_batch_size", "num_train_epochs", "max_steps", "learning_rate", "weight_decay",
        "adam_beta1", "adam_beta2", "adam_epsilon", "warmup_steps", "warmup_ratio", "lr_scheduler_type", "max_grad_norm", "seed",
        "dataloader_drop_last",
    }
)  # fmt: skip
"""Arguments that the loop has."""
_DEFAULTS: Final = {
    "gradient_accumulation_steps": "1",
    "eval_strategy": "no",
    "evaluation_strategy": "no",
    "push_to_hub": "False",
    "fp16": "False",
    "bf16": "False",
    "tf32": "None",
    "optim": "adamw_torch",
    "torch_compile": "False",
    "group_by_length": "False",
    "load_best_model_at_end": "False",
    "label_smoothing_factor": "0.0",
    "gradient_checkpointing": "False",
    "do_eval": "False",
    "do_predict": "False",
    "resume_from_checkpoint": "None",
    "deepspeed": "None",
    "train_sampling_strategy": "random",
}
"""Arguments that may be given if they ask for nothing but this."""
_SCHEDULES: Final = frozenset({"linear", "cosine", "constant", "constant_with_warmup"})
_PLACES: Final = (
    "model",
    "args",
    "data_collator",
    "train_dataset",
    "eval_dataset",
    "processing_class",
)
"""Arguments of a Trainer in their order."""
_KNOWN: Final = frozenset(
    {*_PLACES, "tokenizer", "compute_metrics", "preprocess_logits_for_metrics", "optimizers"}
)


@dataclass(frozen=True)
class TrainerSettings:
    """What a Trainer is given, as code."""

    settings: Mapping[str, str]
    """What its TrainingArguments say, by their names."""
    parts: Mapping[str, cst.BaseExpression]
    """What it is given itself, by the names of its arguments."""
    made: cst.Call | None
    """The call of TrainingArguments."""

    def __getitem__(self, name: str) -> str:
        return self.settings.get(name, "")


@dataclass(frozen=True)
class TrainerCall:
    """What a Trainer trains, and where."""

    trainer: cst.Call
    train: cst.Call
    settings: TrainerSettings
    model: str
    before: tuple[str, ...]
    """Lines that make what the call of the Trainer made of module and data."""
    codes: Mapping[str, str]
    """What the Trainer is given, by the name of its argument."""


def trainer_settings(source: ProgramFile, trainer: cst.Call) -> TrainerSettings:
    """Return what a Trainer is given.

    Args:
        source: The program.
        trainer: The call that makes it.

    Raises:
        RefusedMethodError: It is told what a loop of this form does not do.
    """
    # What is not known to be written out is refused: new versions have new arguments.
    parts: dict[str, cst.BaseExpression] = {}
    for place, one in enumerate(trainer.args):
        plain = _PLACES[place] if place < len(_PLACES) and not one.star else ""
        name = one.keyword.value if one.keyword is not None else plain
        if name not in _KNOWN:
            raise RefusedMethodError(
                one,
                f"`{source.code(one)}` changes what the Trainer does",
                "write what it does into the loop",
            )
        parts[name] = one.value
    if {"tokenizer", "processing_class"} & set(parts) and "data_collator" not in parts:
        raise RefusedMethodError(
            trainer,
            "the tokenizer pads each batch to a length of its own, and a graph has one shape",
            'give data_collator a collator with padding="max_length"',
        )
    made = _arguments(source, trainer, parts.get("args"))
    settings = {}
    for one in made.args if made is not None else ():
        name, code = (
            one.keyword.value if one.keyword is not None else "output_dir",
            source.code(one.value),
        )
        _refuse_setting(one, name, code)
        settings[name] = code
    return TrainerSettings(settings, parts, made)


def _arguments(
    source: ProgramFile, trainer: cst.Call, value: cst.BaseExpression | None
) -> cst.Call | None:
    """Return the call of TrainingArguments; None where the Trainer makes its own."""
    unit = unit_of(value)
    if unit:
        values = [
            node.value
            for node in source.nodes
            if isinstance(node, cst.Assign) and unit in target_units(node.targets[0].target)
        ]
        value = values[0] if len(values) == 1 else value
    if value is None:
        return None
    name = source.imported(value.func) if isinstance(value, cst.Call) else ""
    known = isinstance(value, cst.Call) and name == "transformers.TrainingArguments"
    if isinstance(value, cst.Call) and known and not any(argument.star for argument in value.args):
        return value
    # HfArgumentParser and dictionaries of settings are known only when the program runs.
    raise RefusedMethodError(
        value,
        "nobody can say here what its TrainingArguments are",
        "make TrainingArguments(...) in this file",
    )


def _refuse_setting(node: cst.Arg, name: str, code: str) -> None:
    plain = code.strip("'\"")
    default = _DEFAULTS.get(name)
    is_default = default is not None and (plain == default or (default == "0.0" and plain == "0"))
    if name in _WITHOUT_EFFECT or is_default:
        return
    if name == "lr_scheduler_type" and plain not in _SCHEDULES:
        raise RefusedMethodError(
            node,
            f"the schedule {plain} is not written out",
            "linear, cosine or constant, or a scheduler of your own",
        )
    if name not in _WRITTEN:
        raise RefusedMethodError(
            node,
            f"`{name}={code}` changes what the Trainer does",
            "leave it out, or write it into the loop",
        )
