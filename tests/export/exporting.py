"""Runs exported programs in plain onnxruntime."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch import nn
from torch.utils import _pytree as pytree

from samba_onnx.export.capture.captured_modules import Inputs, arguments
from samba_onnx.export.programs.inference import Exported, export_inference
from tests.export.operators.harness import run_model

# Two orders of summation through a few layers of float32.
RELATIVE = 2e-6


def members(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by path."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def outputs_of(exported: Exported, module: nn.Module, inputs: Inputs) -> dict[str, torch.Tensor]:
    """Return what a program's forward part computes, by name."""
    flat = pytree.tree_leaves(arguments(inputs))
    own = members(module)
    feed = {name: own[path].detach() for name, path in exported.members.items()}
    feed |= {name: flat[index] for name, index in exported.inputs.items()}
    model = exported.program.parts[0].model
    onnx.checker.check_model(ir.to_proto(model))
    names = [value.name or "" for value in model.graph.outputs]
    return dict(zip(names, run_model(model, feed), strict=True))


def check(module: nn.Module, inputs: Inputs, *, relative: float = RELATIVE) -> Exported:
    """Export a module and compare every output with what the module computes itself."""
    exported = export_inference(module, inputs)
    made = outputs_of(exported, module, inputs)
    args, keywords = arguments(inputs)
    with torch.no_grad():
        wanted: list[Any] = pytree.tree_leaves(module(*args, **keywords))
    assert len(wanted) == len(exported.outputs)
    for name, want in zip(exported.outputs, wanted, strict=True):
        if not isinstance(want, torch.Tensor):
            assert name is None
            continue
        assert name is not None
        assert made[name].dtype == want.dtype
        known = want[want.isfinite()].double().abs()
        scale = float(known.max()) if known.numel() and want.is_floating_point() else 0.0
        torch.testing.assert_close(made[name], want, rtol=0, atol=relative * scale, equal_nan=True)
    return exported
