"""Optimizers that step on the host as torch's do, and what the device needs to step as they do."""

from samba_onnx.optim.adam import Adam, AdamW
from samba_onnx.optim.argins import (
    BELOW_ONE,
    HyperparameterValue,
    argin_name,
    derive,
    hyperparameter_names,
    with_settings,
)
from samba_onnx.optim.device_optimizer import DeviceOptimizer
from samba_onnx.optim.reading import group_hyperparameters, optimizer_record
from samba_onnx.optim.records import (
    MASTER,
    Flag,
    GroupRecord,
    OptimizerKind,
    OptimizerRecord,
    from_json,
    state_keys,
    state_name,
    to_json,
)
from samba_onnx.optim.sgd import SGD
from samba_onnx.optim.transfers import (
    ROUNDING_STEPS,
    rounding_steps,
    state_materializers,
    steps_done,
    to_cpu,
    to_rdu,
)

__all__ = [
    "BELOW_ONE",
    "MASTER",
    "ROUNDING_STEPS",
    "SGD",
    "Adam",
    "AdamW",
    "DeviceOptimizer",
    "Flag",
    "GroupRecord",
    "HyperparameterValue",
    "OptimizerKind",
    "OptimizerRecord",
    "argin_name",
    "derive",
    "from_json",
    "group_hyperparameters",
    "hyperparameter_names",
    "optimizer_record",
    "rounding_steps",
    "state_keys",
    "state_materializers",
    "state_name",
    "steps_done",
    "to_cpu",
    "to_json",
    "to_rdu",
    "with_settings",
]
