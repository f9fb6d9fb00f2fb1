"""Numbers that are taken out of what a module changes are refused; all others are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from samba_onnx.errors import BranchWarning, ModelError
from samba_onnx.export.capture.captured_modules import capture


class Counting(nn.Module):
    """Counts its calls, and does something with the count."""

    def __init__(self, use: Callable[[Counting, Tensor], Tensor]) -> None:
        super().__init__()
        self.use = use
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("fixed", torch.tensor(3))
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return self.use(self, x)


def _half_of_the_count(module: Counting, x: Tensor) -> Tensor:
    return x / float((module.count + module.fixed) * 0.5)


def _before_a_count(module: Counting, x: Tensor) -> Tensor:
    return x if module.count > 2 else x * 2


def _position(module: Counting, x: Tensor) -> Tensor:
    return x[:, int(module.count % 2)]


def _replaced(module: Counting, x: Tensor) -> Tensor:
    module.count = module.count * 2
    return x * module.count.item()


def _written_weight(module: Counting, x: Tensor) -> Tensor:
    with torch.no_grad():
        module.scale.mul_(0.5)
    return x * module.scale.sum().item()


@pytest.mark.parametrize(
    "use", [_half_of_the_count, _before_a_count, _position, _replaced, _written_weight]
)
def test_a_number_out_of_what_every_run_changes_is_refused(
    use: Callable[[Counting, Tensor], Tensor],
) -> None:
    module = Counting(use)
    name = "scale" if use is _written_weight else "count"
    with pytest.raises(
        ModelError, match=rf"test_state_reads\.py:\d+: .* out of '{name}'"
    ) as caught:
        capture(module, (torch.ones(2, 2),))
    assert "test_state_reads.py" in str(caught.value.location)
    assert (module.count.item(), module.scale.tolist()) == (0, [1.0, 1.0])


def _by_a_constant(module: Counting, x: Tensor) -> Tensor:
    return x / float(module.fixed)


def _by_the_input(module: Counting, x: Tensor) -> Tensor:
    return x if (x.sum() * module.count) > 0 else -x


def _by_a_weight(module: Counting, x: Tensor) -> Tensor:
    return x * float(module.scale.sum())


@pytest.mark.parametrize("use", [_by_a_constant, _by_the_input, _by_a_weight])
def test_other_numbers_are_warned_of(use: Callable[[Counting, Tensor], Tensor]) -> None:
    with pytest.warns(BranchWarning, match=r"test_state_reads\.py:\d+"):
        captured = capture(Counting(use), (torch.ones(2, 2),))
    assert captured.updates == ("count",)


def test_what_changes_in_the_first_run_only_can_be_compiled_after_it() -> None:
    class Initialised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("ready", torch.tensor(False))
            self.shift = nn.Parameter(torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            if not self.ready:
                with torch.no_grad():
                    self.shift.copy_(-x.mean(0))
                    self.ready.fill_(True)
            return x + self.shift

    module, x = Initialised(), torch.ones(2, 2)
    with pytest.raises(ModelError, match="run the module once before it is compiled"):
        capture(module, (x,))
    module(x)
    with pytest.warns(BranchWarning):
        assert capture(module, (x,)).updates == ()


def test_data_that_are_assigned_are_written() -> None:
    class Assigning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.register_buffer("mean", torch.ones(2))

        def forward(self, x: Tensor) -> Tensor:
            self.weight.data = self.weight.data * 0.5
            self.mean.data = x.mean(0)
            return x * self.weight

    module = Assigning()
    before = module.weight.data_ptr()
    assert sorted(capture(module, (torch.ones(3, 2),)).updates) == ["mean", "weight"]
    assert module.weight.data_ptr() == before
    with pytest.raises(ModelError, match=r"shape \[3\] are assigned to a tensor .* of shape \[2\]"):
        capture(module, (torch.ones(3, 3),))
