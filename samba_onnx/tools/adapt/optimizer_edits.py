"""Optimizers of torch, written as those of SambaFlow that step the same."""

from __future__ import annotations

from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.edits import add_arguments, drop_arguments
from samba_onnx.tools.adapt.graph_code import plain_name
from samba_onnx.tools.adapt.name_units import argument
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.trained_step import Optimizer

_ORDER: Final = {
    "SGD": ("params", "lr", "momentum", "dampening", "weight_decay", "nesterov"),
    "Adam": ("params", "lr", "betas", "eps", "weight_decay", "amsgrad"),
    "AdamW": ("params", "lr", "betas", "eps", "weight_decay", "amsgrad"),
}
"""Positional arguments of torch's classes, which are those of SambaFlow's here too."""
_WAYS: Final = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Arguments that say how a GPU computes a step, and not which."""


class OptimizerEdits:
    """Plans the change of a program's optimizers."""

    def __init__(self, port: ProgramPort) -> None:
        self.port = port

    def plan(self, optimizer: Optimizer, limit: str) -> None:
        """Plan the change of one optimizer.

        Args:
            optimizer: Where it is made.
            limit: The largest norm of gradients, as code; empty if they are not clipped.
        """
        # Others would have to be refused by the session; the reason is better said with the line.
        if optimizer.kind not in _ORDER:
            self.port.points.add(
                optimizer.call,
                "optimizer",
                f"an RDU steps by SGD or AdamW, and not by {optimizer.kind}",
                instead="use AdamW, or SGD with momentum, and look for its learning rate anew",
            )
            return
        kind, added = self._translation(optimizer)
        if limit:
            added["max_grad_norm"] = limit

        def rewrite(node: cst.BaseExpression) -> cst.BaseExpression:
            assert isinstance(node, cst.Call)
            changed = drop_arguments(node, _WAYS)
            changed = changed.with_changes(func=cst.parse_expression(f"samba.optim.{kind}"))
            return add_arguments(changed, **added) if added else changed

        what = f"samba.optim.{kind} steps as torch.optim.{optimizer.kind} does, with all defaults stated"
        self.port.edits.rewrite(optimizer.call, rewrite, "optimizer", what)
        self._convert_models(optimizer)

    def _translation(self, optimizer: Optimizer) -> tuple[str, dict[str, str]]:
        """Return the class, and the arguments whose defaults differ."""
        # SambaFlow's defaults differ from torch's: all that differs is stated.
        call = optimizer.call
        if optimizer.kind == "SGD":
            return "SGD", {}
        added = {}
        if self._given(optimizer, "betas") is None:
            added["betas"] = "(0.9, 0.999)"
        decay = self._given(optimizer, "weight_decay")
        if optimizer.kind == "AdamW":
            if decay is None:
                added["weight_decay"] = "0.01"
            return "AdamW", added
        if decay is None or self.port.source.code(decay.value) in {"0", "0.0"}:
            # Without weight decay, Adam and AdamW are one rule.
            return "AdamW", added
        self.port.points.add(
            call,
            "adam-with-decay",
            "SambaFlow documents AdamW alone, whose weight decay is no part of the gradient; samba.optim.Adam "
            "steps as this one does, and runs here",
            instead="use AdamW, and look for its weight decay anew",
            blocks=False,
        )
        return "Adam", added

    def _given(self, optimizer: Optimizer, name: str) -> cst.Arg | None:
        return argument(optimizer.call, name, _ORDER[optimizer.kind].index(name))

    def _convert_models(self, optimizer: Optimizer) -> None:
        """Convert the modules before their parameters are given to anybody."""
        # Before the parameters are collected: conversion gives them their names.
        place = self.port.source.statement(optimizer.anchor)
        several = len({unit for one in self.port.search.optimizers for unit in one.units}) > 1
        for unit in optimizer.units:
            # Two modules of one class would have the same names on the RDU.
            prefix = f', parent_module_prefix="{plain_name(unit)}"' if several else ""
            self.port.edits.insert_before(
                place,
                f"samba.from_torch_model_({unit}{prefix})",
                "from-torch-model",
                "parameters get the names by which the RDU knows them",
            )
