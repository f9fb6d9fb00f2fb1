from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.comparing.outcome import ComparisonOutcome
from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.operators import activations, registry
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.facts.tolerances import near_torch
from samba_onnx.tensor import SambaTensor, from_torch_model_


class Two(nn.Module):
    """Two layers with a sigmoid between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.second = nn.Linear(8, 2)

    def forward(self, value: Tensor) -> Tensor:
        hidden = torch.nn.functional.silu(self.first(value))
        return torch.softmax(self.second(self.norm(hidden)), -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_equal_graphs_pass(dtype: torch.dtype) -> None:
    module = Two().to(dtype).eval()
    inputs = (torch.randn(3, 4, dtype=dtype),)
    found = compare_with_eager(module, inputs, export_inference(module, inputs))
    assert found.outcome is ComparisonOutcome.DONE
    assert found.notes == ()
    assert list(found.errors) == ["two__softmax__outputs__0"]
    assert all(
        error <= near_torch(str(dtype).removeprefix("torch.")) for error in found.errors.values()
    )


def test_buffers_stay_as_they_were() -> None:
    module, inputs = Two(), (torch.randn(3, 4),)
    before = module.norm.running_mean.clone()  # type: ignore[union-attr]
    compare_with_eager(module, inputs, export_inference(module, inputs))
    torch.testing.assert_close(module.norm.running_mean, before)


def test_converted_modules_are_compared_with_their_own_values() -> None:
    module = Two().eval()
    from_torch_model_(module)
    inputs = (SambaTensor(torch.randn(3, 4), name="value"),)
    found = compare_with_eager(module, inputs, export_inference(module, inputs))
    assert found.outcome is ComparisonOutcome.DONE


def test_mismatch_names_the_first_operator_and_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._TABLE, "silu", activations.relu)
    module, inputs = Two().eval(), (torch.randn(3, 4),)
    exported = export_inference(module, inputs)
    with pytest.raises(
        ExportMismatchError,
        match=r"'two__softmax__outputs__0'.*aten\.silu\.default at test_inference\.py:\d+",
    ) as caught:
        compare_with_eager(module, inputs, exported)
    assert caught.value.operator == "aten.silu.default"
    assert (caught.value.location or "").startswith("test_inference.py:")


def test_changed_weights_are_compared_as_they_are_now() -> None:
    module, inputs = Two().eval(), (torch.randn(3, 4),)
    exported = export_inference(module, inputs)
    with torch.no_grad():
        module.second.weight.fill_(2.0)
    assert compare_with_eager(module, inputs, exported).outcome is ComparisonOutcome.DONE


def test_modules_without_values_are_not_comparable() -> None:
    with torch.device("meta"):
        module = Two().eval()
    inputs = (torch.randn(3, 4),)
    found = compare_with_eager(module, inputs, export_inference(module, inputs))
    assert found.outcome is ComparisonOutcome.NOT_COMPARABLE
    assert found.reason == "parameter 'first.weight' has no values"
    assert found.notes == (
        "What was compiled is not compared with eager torch: parameter 'first.weight' has no "
        "values.",
    )


def test_inputs_without_values_are_drawn() -> None:
    lazy = Two().eval()
    given = (SambaTensor(shape=(3, 4), name="value"),)
    found = compare_with_eager(lazy, given, export_inference(lazy, given))
    assert found.outcome is ComparisonOutcome.DONE
    assert found.notes == (
        "What was compiled is compared with eager torch on values of its own for 'value'.",
    )
