"""A torch model of the user's, from its export to a PEF: what the PEF says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from samba_onnx.compiling.torch.porting import port
from samba_onnx.compiling.torch.torch_models import TorchModel
from samba_onnx.runtime.device import Device
from tests.export.capture.test_caches import Attending


def test_a_module_without_values_has_a_pef_without_weights(tmp_path: Path) -> None:
    with torch.device("meta"):
        empty = torch.nn.Linear(3, 2).eval()
        inputs = (torch.empty(4, 3),)
    with port(TorchModel("linear", empty, inputs, {}), str(tmp_path / "x.pef")) as pef:
        assert "The PEF carries no weights: 'weight' has no values. Whoever runs it loads all." in (
            pef.manifest.notes
        )
        weights = pef.manifest.residents()
        assert not any(symbol.stored for symbol in pef.manifest.symbols)
        with Device(pef) as device:
            full = torch.nn.Linear(3, 2)
            device.load(
                {
                    f"linear__{name}": tensor.detach().numpy()
                    for name, tensor in full.named_parameters()
                }
            )
            x = torch.randn(4, 3)
            (result,) = device.run({pef.manifest.graphs[0].inputs[0]: x.numpy()}).values()
    assert len(weights) == 2
    torch.testing.assert_close(torch.from_numpy(result), full(x).detach())


@pytest.mark.parametrize("check", [True, False])
def test_a_pef_says_which_cache_was_left_out(check: bool, tmp_path: Path) -> None:
    model = TorchModel("attending", Attending().eval(), (torch.randn(1, 2, 1, 4),), {})
    with port(model, str(tmp_path / "x.pef"), check=check, sample=False) as pef:
        assert [note for note in pef.manifest.notes if "DynamicCache" in note]
