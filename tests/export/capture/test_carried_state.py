"""What ``forward`` keeps in attributes between calls: state, refused with the line, or harmless."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.captured_modules import capture
from tests.export.module_state import changes, state_of

ROWS, WIDTH = 3, 4
TOTAL = 0
TABLE: dict[int, Tensor] = {}


class Keeping(nn.Module):
    """A layer, and whatever else a module keeps and does."""

    def __init__(self, step: Callable[[Any, Tensor], Tensor], **kept: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.step = step
        for name, value in kept.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, self.linear(x))


class Outer(nn.Module):
    """A module two levels further out."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.part = nn.Sequential(inner)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x).tanh()


def zeros(rows: int = ROWS) -> Tensor:
    return torch.zeros(rows, WIDTH)


def annealed(module: Any, y: Tensor) -> Tensor:
    module.count += 1
    return y / module.count


def before_a_thousand(module: Any, y: Tensor) -> Tensor:
    module.count += 1
    return y if module.count < 1000 else -y


def by_a_schedule(module: Any, y: Tensor) -> Tensor:
    y = y * [1.0, 0.5, 0.1][min(2, module.count // 500)]
    module.count += 1
    return y


def exponential(module: Any, y: Tensor) -> Tensor:
    module.rate = module.rate * 0.9
    return y * math.exp(-module.rate)


def alternating(module: Any, y: Tensor) -> Tensor:
    module.flag = not module.flag
    return y if module.flag else -y


def from_nothing(module: Any, y: Tensor) -> Tensor:
    module.hidden = (y if module.hidden is None else y + module.hidden).detach()
    return module.hidden + y


def growing(module: Any, y: Tensor) -> Tensor:
    module.memory = torch.cat([module.memory, y.detach()])
    return y + module.memory.mean(0)


def collecting(module: Any, y: Tensor) -> Tensor:
    module.past.append(y.detach())
    return torch.stack(module.past).mean(0)


def first_batch(module: Any, y: Tensor) -> Tensor:
    if module.center is None:
        module.center = y.detach().mean(0)
    return y - module.center


def reversed_gradient(module: Any, y: Tensor) -> Tensor:
    module.count += 1
    return y + (y - y.detach()) * float(module.count)


def in_a_global(module: Any, y: Tensor) -> Tensor:
    global TOTAL
    TOTAL += 1
    return y * TOTAL


def in_a_class(module: Any, y: Tensor) -> Tensor:
    Keeping.calls = getattr(Keeping, "calls", 0) + 1  # type: ignore[attr-defined]
    return y * Keeping.calls  # type: ignore[attr-defined]


REFUSED: dict[str, tuple[Callable[..., Tensor], dict[str, Any], str]] = {
    "annealing": (annealed, {"count": 0}, "it is 0 before the first call and 1 after it"),
    "threshold": (before_a_thousand, {"count": 0}, "register_buffer"),
    "schedule": (by_a_schedule, {"count": 0}, "register_buffer"),
    "float": (exponential, {"rate": 1.0}, r"it is 1\.0 before .*torch\.float32"),
    "flag": (alternating, {"flag": False}, "choose by torch.where"),
    "None first": (from_nothing, {"hidden": None}, r"hidden = torch\.zeros\(\[3, 4\]"),
    "growing": (growing, {"memory": zeros()}, "keeps its shape"),
    "list": (collecting, {"past": []}, "0 values in it before .* and 1 after it"),
    "first batch": (first_batch, {"center": None}, "run the module once before it is compiled"),
    "gradient only": (reversed_gradient, {"count": 0}, "register_buffer"),
}


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("name", REFUSED)
def test_what_changes_what_later_calls_compute_is_refused_with_its_line(
    name: str, depth: int
) -> None:
    step, kept, words = REFUSED[name]
    inner = Keeping(step, **kept).train()
    module = Outer(inner) if depth else inner
    x = torch.randn(ROWS, WIDTH)
    before = state_of(module)
    path = ("part.0." if depth else "") + next(iter(kept))
    with pytest.raises(ModelError, match=words) as caught:
        capture(module, (x,))
    message = str(caught.value)
    assert message.startswith("test_carried_state.py:"), message
    assert f"keeps {path!r} from call to call" in message
    first = step.__code__.co_firstlineno
    assert first < int(message.split(":")[1]) <= first + 4
    assert changes(before, state_of(module)) == []


@pytest.mark.parametrize("step", [in_a_global, in_a_class])
def test_what_is_kept_outside_of_the_module_is_refused(step: Callable[..., Tensor]) -> None:
    with pytest.raises(ModelError, match=r"keeps '.*\.(TOTAL|calls)' from call to call"):
        capture(Keeping(step), (torch.randn(ROWS, WIDTH),))


def test_a_variable_of_a_closure_is_refused() -> None:
    def make() -> Callable[[Any, Tensor], Tensor]:
        last = zeros()

        def step(_module: Any, y: Tensor) -> Tensor:
            nonlocal last
            last = last + y.detach()
            return y + last

        return step

    module = Keeping(make())
    with pytest.raises(ModelError, match="keep it in an attribute of the module"):
        capture(module, (torch.randn(ROWS, WIDTH),))


def written_only(module: Any, y: Tensor) -> Tensor:
    module.last = y
    module.log.append(float(y.shape[0]))
    return y


def lazily(module: Any, y: Tensor) -> Tensor:
    if module.mask is None or module.mask.shape[0] != y.shape[0]:
        module.mask = torch.ones(y.shape[0], y.shape[0]).tril()
    return module.mask @ y


def by_shape(module: Any, y: Tensor) -> Tensor:
    if y.shape[0] not in TABLE:
        TABLE[y.shape[0]] = torch.arange(float(y.shape[0]))[:, None].cos()
    return y * TABLE[y.shape[0]]


def cleared(module: Any, y: Tensor) -> Tensor:
    module.past.clear()
    for row in y:
        module.past.append(row)
    return torch.stack(module.past)


def printed(module: Any, y: Tensor) -> Tensor:
    module.count += 1
    module.text = f"call {module.count} of {module.count + 1}"
    return y


def set_again(module: Any, y: Tensor) -> Tensor:
    module.scale = 2.0
    module.size = tuple(y.shape)
    return y * module.scale


def written_before_read(module: Any, y: Tensor) -> Tensor:
    module.last = y * 2
    return y + module.last


HARMLESS: dict[str, tuple[Callable[..., Tensor], dict[str, Any]]] = {
    "written only": (written_only, {"last": None, "log": []}),
    "written only, once run": (written_only, {"last": zeros(), "log": []}),
    "lazily built": (lazily, {"mask": None}),
    "built already": (lazily, {"mask": torch.ones(ROWS, ROWS).tril()}),
    "by shape": (by_shape, {}),
    "cleared": (cleared, {"past": [zeros(1)] * 5}),
    "printed": (printed, {"count": 0, "text": ""}),
    "set again": (set_again, {"scale": 2.0, "size": None}),
    "written before read": (written_before_read, {"last": zeros()}),
    "not there before": (written_before_read, {}),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", HARMLESS)
def test_what_makes_no_difference_stays_as_it_is(name: str, training: bool) -> None:
    step, kept = HARMLESS[name]
    module, x = Keeping(step, **kept).train(training), torch.randn(ROWS, WIDTH)
    before = state_of(module)
    assert capture(module, (x,)).updates == ()
    assert changes(before, state_of(module)) == []


def summed(module: Any, y: Tensor) -> Tensor:
    module.hidden = module.hidden + y.detach()
    return y * module.hidden


def in_place(module: Any, y: Tensor) -> Tensor:
    with torch.no_grad():
        module.hidden.mul_(0.5).add_(y.mean(0))
    return y + module.hidden


def taken_out(module: Any, y: Tensor) -> Tensor:
    summed(module, y)
    return y * module.hidden.sum().item()


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("step", [summed, in_place])
def test_a_tensor_of_one_shape_becomes_a_buffer_that_state_dict_leaves_out(
    step: Callable[..., Tensor], depth: int
) -> None:
    inner = Keeping(step, hidden=zeros())
    module = Outer(inner) if depth else inner
    path = "part.0.hidden" if depth else "hidden"
    keys = list(module.state_dict())
    x = torch.randn(ROWS, WIDTH)
    assert capture(module, (x,)).updates == (path,)
    assert dict(module.named_buffers())[path] is inner.hidden
    assert not inner.hidden.any()
    assert list(module.state_dict()) == keys
    # Traced once more it is what it was; torch runs it as before.
    assert capture(module, (x,)).updates == (path,)
    module(x)
    assert inner.hidden.any()


def test_a_number_out_of_state_in_an_attribute_is_refused_as_out_of_a_buffer() -> None:
    # What it is of comes from the input, which is found first.
    with pytest.raises(ModelError, match=r"takes a number out of (input 'x'|'hidden')"):
        capture(Keeping(taken_out, hidden=zeros()), (torch.randn(ROWS, WIDTH),))


def test_state_is_looked_for_where_tensors_have_no_values() -> None:
    with torch.device("meta"):
        module = Keeping(functools.partial(summed))
    module.hidden = zeros()
    assert capture(module, (torch.empty(ROWS, WIDTH, device="meta"),)).updates == ("hidden",)
