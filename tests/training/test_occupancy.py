"""Device memory over a training step that adds gradients up: plan and device agree after every call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import samba_onnx as samba
from samba_onnx.comparing.residents import set_gradients
from samba_onnx.pef import load_pef
from samba_onnx.pef.lifetimes import graph_lifetimes, timeline
from samba_onnx.program.kinds import LOADED_KINDS, SymbolKind
from samba_onnx.runtime.inputs import InputSpec
from tests.runtime.stepping import opened, refuse_to_lack, steps
from tests.training.small import Classifier, draw
from tests.training.trajectory import prepare


def test_training_with_accumulation(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model, batch = Classifier(), draw()
    samba.from_torch_model_(model)
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.1)
    config = {"gradient_accumulation": True}
    path = prepare(model, batch, [optimizer], tmp_path, config_dict=config).path
    inputs = {name: tensor.numpy() for name, tensor in batch.items()}
    with load_pef(path) as pef, opened(pef) as device:
        manifest = pef.manifest
        (graph,) = manifest.graphs
        inputs = {n: inputs[n].astype(InputSpec(pef.symbol(n)).dtype) for n in inputs}
        loaded = [s for s in manifest.symbols if s.name in manifest.residents()]
        device.load(
            {s.name: np.zeros(s.shape, np.float32) for s in loaded if s.kind in LOADED_KINDS}  # type: ignore[arg-type]
        )
        set_gradients(device, manifest, list(manifest.stages().values()))
        transient = steps(device, manifest, graph, inputs)
        saved = [lifetime for lifetime in transient if lifetime.kind is SymbolKind.ACTIVATION]
        assert any(
            lifetime.last > lifetime.first for lifetime in saved
        )  # for the backward sections
        for lifetime in saved:
            refuse_to_lack(device, manifest, graph, inputs, lifetime)
        # Two states of AdamW and a gradient for every parameter, in float32.
        (entry, *_) = timeline(graph_lifetimes(manifest, graph), len(graph.calls))
        kinds = {kind: sum(n for (_, k), n in entry.items() if k is kind) for _, kind in entry}
        weights = 4 * sum(parameter.numel() for parameter in model.parameters())
        assert kinds[SymbolKind.WEIGHT] == weights
        assert kinds[SymbolKind.OPTIMIZER_STATE] == 2 * weights
        assert kinds[SymbolKind.GRADIENT] == weights + 4  # and that of the loss
