"""Writing trained weights back into ONNX models."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import onnx
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.importing import OnnxModule, to_onnx
from samba_onnx.sessions.module_transfers import to_cpu
from samba_onnx.sessions.onnx_models import is_onnx, model_source
from samba_onnx.sessions.onnx_modules import same_model
from samba_onnx.sessions.traced_state import TracedState
from samba_onnx.sessions.turns import in_turn
from samba_onnx.tensor import DEVICE


class OnnxWriter:
    """Writes the weights of modules that were made of ONNX models."""

    def __init__(self, state: TracedState) -> None:
        """Take what writing depends on.

        Args:
            state: Knows which modules were traced, so that their weights are on the device.
        """
        self._state = state

    @in_turn
    def to_onnx(self, model: Any, path: str | os.PathLike[str] | None = None) -> onnx.ModelProto:
        """Return an ONNX model with the weights that it has by now.

        Weights and buffers of a model that was traced are fetched from the device first, into the
        host's memory. Everything but their content is as it was in the model: names, interface,
        nodes, metadata; losses that were built on it are no part of it.

        Args:
            model: What ``samba.from_onnx`` returned, or the ONNX model that was traced with its
                optimizers, or the path to it.
            path: Where to write the model, in whole or not at all. Weights go into a file beside
                it, named with ``.data`` appended, when they did so in the original or take more
                than 2 GB.

        Returns:
            The model; with data beside the file it refers to that data, else it holds its weights.

        Raises:
            UsageError: The module was not made of an ONNX model, or the ONNX model was not traced
                for training.
            OutputError: The file cannot be written.
            ModelError: A weight has another shape than in the model.
        """
        module = model
        if is_onnx(model):
            module = next((one for one in self._onnx_modules() if same_model(one, model)), None)
            if module is None:
                raise UsageError(
                    f"{model_source(model)} was not traced with optimizers, so that it has no "
                    "weights but its own: give the module that samba.from_onnx returned"
                )
        # The device may have trained them further than the host knows.
        if isinstance(module, OnnxModule) and DEVICE.attached and self._has_traced(module):
            to_cpu(module, inplace=True)
        return to_onnx(module, path)

    def _onnx_modules(self) -> Iterator[OnnxModule]:
        for traced in self._state.graphs.values():
            if isinstance(traced.model, OnnxModule):
                yield traced.model

    def _has_traced(self, module: nn.Module) -> bool:
        """Whether a traced module has these weights."""
        # By parameters, not by module: variants with other losses share them.
        mine = {id(parameter) for parameter in module.parameters()}
        return any(
            id(parameter) in mine
            for traced in self._onnx_modules()
            for parameter in traced.parameters()
        )
