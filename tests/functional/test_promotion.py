"""Products of bfloat16 with float32: computed in float32, as where everything is converted by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import samba_onnx as samba
from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.comparing.outcome import ComparisonOutcome
from samba_onnx.export.capture import mixed_precision
from samba_onnx.export.capture.captured_modules import capture
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.functional import HOST_OPERATORS
from samba_onnx.functional.promotion import PROMOTED, Promotion
from tests.export.exporting import RELATIVE, outputs_of
from tests.export.training_models import prepared

Operation = Callable[[Tensor, Tensor], Tensor]

WIDE, NARROW = torch.float32, torch.bfloat16
ROUNDING = 2.0**-8
"""One rounding to bfloat16, which a gradient has behind float32."""
CLASSES = torch.tensor([0, 2, 3, 1])
PLACES = torch.tensor([[0, 1, 2, 0]])

# Both operands are (4, 4), the first of float32 and the second of bfloat16. What happens to the second
# before it is promoted is exact in bfloat16.
OPERATIONS: dict[str, Operation] = {
    "addbmm": lambda x, y: torch.addbmm(x, y[None], x[None]),
    "addmm": lambda x, y: torch.addmm(x, y, x),
    "addmv": lambda x, y: torch.addmv(x[0], y, x[1]),
    "baddbmm": lambda x, y: torch.baddbmm(x[None], x[None], y[None]),
    "bilinear": lambda x, y: functional.bilinear(x, x, y.expand(3, 4, 4)),
    "binary_cross_entropy": lambda x, y: functional.binary_cross_entropy(
        x.sigmoid(), y.clamp(0.125, 0.875), reduction="none"
    ),
    "bmm": lambda x, y: torch.bmm(x[None], y[None]),
    "cdist": torch.cdist,
    "conv1d": lambda x, y: functional.conv1d(x[None], y[:, :, None]),
    "conv2d": lambda x, y: functional.conv2d(x[None, None], y[None, None, :2, :2]),
    "conv3d": lambda x, y: functional.conv3d(x[None, None, None], y[None, None, None, :2, :2]),
    "conv_transpose1d": lambda x, y: functional.conv_transpose1d(x[None], y[:, :, None]),
    "conv_transpose2d": lambda x, y: functional.conv_transpose2d(x[None, None], y[None, None]),
    "cross": lambda x, y: torch.linalg.cross(x[:, :3], y[:, :3]),
    "cross_entropy": lambda x, y: functional.cross_entropy(x, CLASSES, y[0].abs()),
    "dot": lambda x, y: torch.dot(x[0], y[0]),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "embedding_bag": lambda x, y: functional.embedding_bag(
        PLACES, y, per_sample_weights=x[:1], mode="sum"
    ),
    "grid_sample": lambda x, y: functional.grid_sample(
        x[None, None], y[None, :, :2, None].clamp(-0.875, 0.875).mT, align_corners=False
    ),
    "group_norm": lambda x, y: functional.group_norm(x, 2, y[0], y[1]),
    "index_add": lambda x, y: x.index_add(0, CLASSES, y),
    "index_copy": lambda x, y: x.index_copy(0, CLASSES, y),
    "index_put": lambda x, y: x.index_put((CLASSES,), y),
    "inner": torch.inner,
    "layer_norm": lambda x, y: functional.layer_norm(x, (4,), y[0], y[1]),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "linear": lambda x, y: functional.linear(x, y, y[0]),
    "linear of two types with a bias": lambda x, y: functional.linear(y, y, x[0]),
    "matmul": lambda x, y: x @ y,
    "matmul, narrow first": lambda x, y: y @ x,
    "mm": torch.mm,
    "multi_dot": lambda x, y: torch.linalg.multi_dot([x, y, x]),
    "multi_margin_loss": lambda x, y: functional.multi_margin_loss(x, CLASSES, weight=y[0].abs()),
    "mv": lambda x, y: torch.mv(x, y[0]),
    "nll_loss": lambda x, y: functional.nll_loss(x, CLASSES, y[0].abs()),
    "prelu": lambda x, y: functional.prelu(x, y[0]),
    "scaled_dot_product_attention": lambda x, y: functional.scaled_dot_product_attention(
        x[None], y[None], x[None]
    ),
    "scatter": lambda x, y: x.scatter(0, CLASSES[:, None].expand(4, 4), y),
    "scatter_add": lambda x, y: x.scatter_add(0, CLASSES[:, None].expand(4, 4), y),
    "tensordot": lambda x, y: torch.tensordot(x, y, 1),
    "written in place": lambda x, y: x.clone().index_add_(0, CLASSES, y),
}
# What torch computes of both types itself: promotion must not touch it.
ALIKE: dict[str, Operation] = {
    "add": lambda x, y: x + y,
    "cat": lambda x, y: torch.cat([x, y]),
    "layer_norm of bfloat16": lambda x, y: functional.layer_norm(y, (4,), x[0], x[1]),
    "mse_loss": functional.mse_loss,
    "outer": lambda x, y: torch.outer(x[0], y[0]),
    "rms_norm": lambda x, y: functional.rms_norm(x, (4,), y[0]),
    "where": lambda x, y: torch.where(x > 0, x, y),
}
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]] = {
    "attention": (lambda: nn.MultiheadAttention(6, 2, batch_first=True), ((2, 4, 6),) * 3),
    "batch norm": (lambda: nn.BatchNorm1d(6), ((8, 6),)),
    "bilinear": (lambda: nn.Bilinear(6, 6, 3), ((4, 6), (4, 6))),
    "convolution": (lambda: nn.Conv2d(3, 4, 3), ((2, 3, 5, 5),)),
    "encoder": (lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), ((2, 4, 6),)),
    "gru": (lambda: nn.GRU(6, 5), ((3, 2, 6),)),
    "gru cell": (lambda: nn.GRUCell(6, 5), ((4, 6),)),
    "instance norm": (lambda: nn.InstanceNorm1d(3, affine=True), ((2, 3, 5),)),
    "linear": (lambda: nn.Linear(6, 3), ((4, 6),)),
    "lstm": (lambda: nn.LSTM(6, 5, batch_first=True), ((2, 3, 6),)),
    "lstm cell": (lambda: nn.LSTMCell(6, 5), ((4, 6),)),
    "rnn": (lambda: nn.RNN(6, 5), ((3, 2, 6),)),
    "transposed convolution": (lambda: nn.ConvTranspose1d(3, 4, 3), ((2, 3, 5),)),
}


class Loss(nn.Module):
    """A module with a loss behind its first output."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Tensor) -> Tensor:
        returned: Any = self.inner(*inputs)
        first = returned[0] if isinstance(returned, tuple) else returned
        return first.sin().square().mean()


class Applied(nn.Module):
    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return self.operation(one, other)


def operands() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    one, other = torch.randn(2, 4, 4, generator=generator)
    return one, other.to(NARROW)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_that_torch_refuses_compute_in_float32(name: str) -> None:
    one, other = operands()
    operation = OPERATIONS[name]
    by_hand = operation(one, other.float())
    with pytest.raises((RuntimeError, ValueError)):
        operation(one, other)
    with Promotion():
        result = operation(one, other)
    assert result.dtype == WIDE
    # The same kernels on the same numbers.
    assert torch.equal(result, by_hand)
    with HOST_OPERATORS.paused():
        ours = operation(samba.SambaTensor(one), samba.SambaTensor(other))
    assert torch.equal(samba.to_torch(ours), by_hand)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_compiled_in_float32(name: str) -> None:
    inputs = operands()
    model = Applied(OPERATIONS[name])
    exported = export_inference(model, inputs)
    (result,) = outputs_of(exported, model, inputs).values()
    assert result.dtype == WIDE
    by_hand = OPERATIONS[name](inputs[0], inputs[1].float())
    scale = float(by_hand.abs().max())
    torch.testing.assert_close(result, by_hand, rtol=0, atol=RELATIVE * scale)


@pytest.mark.filterwarnings("ignore:Mismatch dtype:UserWarning")  # torch's, of its RMS norm
@pytest.mark.parametrize("name", ALIKE)
def test_what_torch_computes_of_both_types_stays(name: str) -> None:
    one, other = operands()
    expected = ALIKE[name](one, other)
    with Promotion():
        result = ALIKE[name](one, other)
    assert result.dtype == expected.dtype
    assert torch.equal(result, expected)


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_bfloat16_train_on_float32(name: str) -> None:
    make, shapes = MODULES[name]
    torch.manual_seed(0)
    module = Loss(make()).bfloat16()
    by_hand = copy.deepcopy(module).float()
    inputs = tuple(torch.randn(shape) for shape in shapes)
    expected = by_hand(*inputs)
    expected.backward()
    machine = prepared(module, inputs)
    machine.run()
    loss = machine[machine.exported.outputs[0] or ""]
    assert loss.dtype == WIDE
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=0)
    compared = 0
    for symbol, path in machine.exported.members.items():
        if path not in dict(module.named_parameters()):
            continue
        gradient = by_hand.get_parameter(path).grad
        assert gradient is not None
        ours = machine[f"{symbol}__grad"]
        assert ours.dtype == NARROW
        # A gradient near zero has float32's errors of the larger ones of its tensor.
        scale = float(gradient.abs().max())
        torch.testing.assert_close(ours.float(), gradient, rtol=ROUNDING, atol=1e-5 * scale + 1e-8)
        compared += 1
    assert compared == len(list(module.parameters()))


@pytest.mark.parametrize("name", MODULES)
def test_the_check_promotes_as_the_export_does(name: str) -> None:
    make, shapes = MODULES[name]
    torch.manual_seed(0)
    module = make().bfloat16()
    inputs = tuple(torch.randn(shape) for shape in shapes)
    comparison = compare_with_eager(module, inputs, export_inference(module, inputs))
    assert comparison.outcome is ComparisonOutcome.DONE
    assert comparison.errors


def test_running_statistics_keep_their_type() -> None:
    module = nn.BatchNorm1d(3).bfloat16()
    by_hand = copy.deepcopy(module).float()
    batch = torch.randn(16, 3) + 2
    by_hand(batch)
    exported = export_inference(module, (batch,))
    outputs = outputs_of(exported, module, (batch,))
    for path in ("running_mean", "running_var"):
        updated = outputs[f"batchnorm1d__{path}__updated"]
        assert torch.equal(updated, by_hand.get_buffer(path).to(NARROW))
    assert module.running_mean is not None
    assert not module.running_mean.any()  # the export changes nothing


@pytest.mark.parametrize(
    ("module", "batch"),
    [
        (nn.Linear(4, 2), torch.randn(3, 4)),
        (nn.Linear(4, 2).bfloat16(), torch.randn(3, 4).bfloat16()),
        (nn.LSTM(4, 2).half(), torch.randn(3, 1, 4).half()),
    ],
)
def test_a_module_of_one_type_is_not_touched(
    monkeypatch: pytest.MonkeyPatch, module: nn.Module, batch: Tensor
) -> None:
    def installed() -> None:
        raise AssertionError("a module of one type computes within a mode")

    monkeypatch.setattr(mixed_precision, "Promotion", installed)
    compare_with_eager(module, (batch,), export_inference(module, (batch,)))


def test_mixed_modules_are_within_the_mode_and_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = [0]

    class Counted(Promotion):
        def __init__(self) -> None:
            super().__init__()
            count[0] += 1

    monkeypatch.setattr(mixed_precision, "Promotion", Counted)
    check, module = (
        nn.RNNBase.check_input,
        nn.Sequential(nn.Linear(4, 4).bfloat16(), nn.Linear(4, 2)),
    )
    capture(module, (torch.randn(3, 4),))
    assert count == [1]
    assert nn.RNNBase.check_input is check
    assert not module._forward_hooks
    assert not module._forward_pre_hooks
    with pytest.raises(RuntimeError):
        module(torch.randn(3, 4))


def test_sizes_of_recurrent_inputs_are_still_checked() -> None:
    with pytest.raises(samba.SambaError, match="Expected 4, got 5"):
        capture(nn.LSTM(4, 2).bfloat16(), (torch.randn(3, 1, 5),))


def test_half_precision_stays_refused() -> None:
    with Promotion(), pytest.raises(RuntimeError):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2, dtype=torch.float16))
    assert "add" not in PROMOTED
