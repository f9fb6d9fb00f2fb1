from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from samba_onnx.errors import BranchWarning, ModelError, UsageError
from samba_onnx.export.capture.captured_modules import PlaceholderKind, arguments, capture
from tests.export.exporting import check, outputs_of


class Branching(nn.Module):
    """Does one of two things."""

    def forward(self, value: Tensor) -> Tensor:
        if value.sum() > 0:
            return value * 2
        return value - 1


class Taking(nn.Module):
    """Computes with numbers taken out of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.tensor([[1.0, 2.0, 2.5], [0.5, -1.0, 0.0]]))

    def forward(self, value: Tensor) -> Tensor:
        first = self.own.tolist()[0][1]
        return value[:, : int(self.own.abs().max())] * self.own.mean().item() + first


class Abandoning(nn.Module):
    """Leaves a generator behind, in a cycle, which is closed when garbage is collected."""

    def forward(self, value: Tensor) -> Tensor:
        cycle: list[Any] = [batches()]
        next(cycle[0])
        cycle.append(cycle)
        del cycle
        return value.relu().sum()


def batches() -> Iterator[int]:
    try:
        yield from range(2)
    finally:
        with torch.no_grad():
            CLOSED.append(torch.zeros(1).add_(1))


CLOSED: list[Tensor] = []


@pytest.fixture
def collected_at_once() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)


def operators(module: nn.Module, inputs: Any) -> list[str]:
    graph = capture(module, inputs).graph_module.graph
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def test_composite_operators_stay_whole() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU())
    assert operators(module, (torch.ones(1, 4),)) == [
        "aten.linear.default",
        "aten.layer_norm.default",
        "aten.gelu.default",
    ]


@pytest.mark.usefixtures("collected_at_once")
def test_what_closes_as_garbage_is_not_recorded() -> None:
    assert operators(Abandoning(), (torch.ones(3),)) == ["aten.relu.default", "aten.sum.default"]
    gc.collect()
    assert [type(tensor) for tensor in CLOSED] == [Tensor]


def test_placeholders_say_what_they_are() -> None:
    captured = capture(nn.BatchNorm1d(2).eval(), (torch.ones(3, 2),))
    kinds = {placeholder.qualified: placeholder.kind for placeholder in captured.placeholders}
    assert kinds["weight"] is PlaceholderKind.PARAMETER
    assert kinds["running_mean"] is PlaceholderKind.BUFFER
    assert kinds["input"] is PlaceholderKind.INPUT
    assert not captured.updates


@pytest.mark.parametrize("sign", [1, -1])
def test_only_the_branch_taken_is_kept(sign: int) -> None:
    value = torch.full((2, 2), float(sign))
    with pytest.warns(
        BranchWarning, match=r"test_captured_modules\.py:\d+: what Branching does"
    ) as found:
        taken = operators(Branching(), (value,))
    assert len(found) == 1
    assert ("aten.mul.Tensor" in taken) == (sign > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BranchWarning)
        check(Branching(), (value,))


def test_values_taken_out_of_tensors_become_numbers() -> None:
    with pytest.warns(BranchWarning) as found:
        check(Taking(), (torch.randn(2, 3),))
    assert len({str(warning.message) for warning in found}) == 2


def test_branches_need_values() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, device="meta"))

        def forward(self, value: Tensor) -> Tensor:
            return value if (value * self.weight).sum() > 0 else -value

    with pytest.raises(ModelError, match="parameter 'weight' has no values"):
        capture(Scaled(), (torch.ones(2),))


def test_recording_leaves_buffers_as_they_were() -> None:
    class Counting(nn.Module):
        steps: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, value: Tensor) -> Tensor:
            self.steps.add_(1)
            return value * 2 if self.steps > 0 else value

    module = Counting()
    with pytest.warns(BranchWarning):
        captured = capture(module, (torch.ones(2),))
    assert captured.updates == ("steps",)
    assert module.steps.item() == 0


def test_sizes_that_depend_on_values_are_refused() -> None:
    class Selecting(nn.Module):
        def forward(self, value: Tensor) -> Tensor:
            return value[value > 0]

    with pytest.raises(ModelError, match=r"test_captured_modules\.py:\d+.*size"):
        check(Selecting(), (torch.randn(4),))


def test_errors_of_the_module_name_the_line() -> None:
    class Failing(nn.Module):
        def forward(self, value: Tensor) -> Tensor:
            raise KeyError("nothing of that name")

    with pytest.raises(
        ModelError, match=r"test_captured_modules\.py:\d+: KeyError: 'nothing of that name"
    ):
        capture(Failing(), (torch.ones(1),))


def test_inputs_that_do_not_fit_forward() -> None:
    with pytest.raises(UsageError, match=r"do not fit Linear\.forward"):
        capture(nn.Linear(2, 2), (torch.ones(2), torch.ones(2)))
    with pytest.raises(UsageError, match="wrong"):
        capture(nn.Linear(2, 2), {"wrong": torch.ones(2)})
    with pytest.raises(UsageError, match="inputs are int"):
        arguments(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a module was expected"):
        capture(torch.relu, (torch.ones(2),))  # type: ignore[arg-type]


def test_own_functions_inside_forward() -> None:
    import samba_onnx as samba

    class Reducing(nn.Module):
        def forward(self, value: Tensor) -> Any:
            return samba.sn_reduce(value, 1, "SUM") + samba.relu(value)

    check(Reducing(), (torch.randn(2, 3),))


class Peak(nn.Module):
    """Keeps the largest number that it has seen, out of reach of autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("peak", torch.ones(()))
        self.register_buffer("before", torch.zeros(()))
        self.register_buffer("fixed", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        old = self.peak
        self.peak = torch.maximum(self.peak, x.data.max())
        self.before = old * 1.0
        self.peak = self.peak + self.fixed
        return x / self.peak + old


class Peaks(nn.Module):
    """The same, one inside of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = Peak()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.peak(self.inner(x))
        return result


@pytest.mark.parametrize("kind", [Peak, Peaks])
def test_buffers_that_are_given_new_tensors_are_updated(kind: type[nn.Module]) -> None:
    torch.manual_seed(1)
    module, inputs = kind().eval(), (torch.rand(2, 3) + 1,)
    captured = capture(module, inputs)
    assert {path.rpartition(".")[2] for path in captured.updates} == {"peak", "before"}
    assert not captured.constants
    exported = check(module, inputs)
    fresh = _fresh(module)
    made = outputs_of(exported, fresh, inputs)
    with torch.no_grad():
        fresh(*inputs)
    buffers = dict(fresh.named_buffers())
    updated = {name: path for name, path in exported.members.items() if path in buffers}
    for name, path in updated.items():
        if not path.endswith("fixed"):
            torch.testing.assert_close(made[f"{name}__updated"], buffers[path])


def _fresh(module: nn.Module) -> nn.Module:
    """A copy whose buffers are as they were made."""
    twin = copy.deepcopy(module)
    for name, buffer in twin.named_buffers():
        buffer.fill_(0.0 if name.endswith("before") else 1.0)
    return twin


class Grows(nn.Module):
    """Replaces a buffer by a larger one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = torch.cat([self.seen, x])
        return self.seen


def test_buffers_keep_their_shape() -> None:
    with pytest.raises(ModelError, match=r"replaces its buffer 'seen'.*keeps its type and shape"):
        capture(nn.Sequential(Grows()), (torch.ones(1),))
