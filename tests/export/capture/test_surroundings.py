"""Nothing that was traced is left behind: in modules, what they hold, globals, classes and caches."""

from __future__ import annotations

import copy
import functools
import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor

import samba_onnx as samba
from samba_onnx.errors import GraphMismatchError
from samba_onnx.export.capture.surroundings import forget_traced
from samba_onnx.sessions import SESSION

KEPT: list[Any] = []
NAMED: dict[str, Any] = {"other": "kept"}


class Base(nn.Module):
    """A layer, for modules that differ in where they put what they compute."""

    shared: Any = None

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)


class Biased(Base):
    """Keeps a bias that it computes from a parameter, as attention of LeViT does."""

    places: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.biases = nn.Parameter(torch.randn(2, 16))
        self.register_buffer("places", torch.arange(12).reshape(3, 4), persistent=False)
        self.cache: dict[str, Tensor] = {}

    def bias(self) -> Tensor:
        if self.training:
            return self.biases[:, self.places]
        key = str(self.biases.device)
        if key not in self.cache:
            self.cache[key] = self.biases[:, self.places]
        return self.cache[key]

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.bias().sum(0)


class Tables:
    """A helper that is no module, and computes tables when they are first asked for."""

    def __init__(self) -> None:
        self.cosines: Tensor | None = None
        self.sines: list[Tensor] = []

    def __call__(self, length: int) -> tuple[Tensor, Tensor]:
        if self.cosines is None or len(self.cosines) < length:
            angles = torch.outer(torch.arange(float(length)), torch.tensor([1.0, 1.0, 0.1, 0.1]))
            self.cosines = angles.cos()
            self.sines.append(angles.sin())
        return self.cosines[:length], self.sines[-1][:length]


class Rotary(Base):
    """Keeps tables for positions in attributes, and in a helper."""

    def __init__(self) -> None:
        super().__init__()
        self.longest, self.tables = 0, Tables()

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > self.longest:
            self.longest, self.ramp = x.shape[0], torch.arange(x.shape[0]).float()
        hidden: Tensor = self.layer(x) + self.ramp.unsqueeze(1)
        cosines, sines = self.tables(x.shape[0])
        return hidden * cosines + hidden.flip(-1) * sines


@functools.lru_cache
def table(length: int) -> Tensor:
    return torch.arange(float(length)).cos()


class Cached(Base):
    """Asks a function that keeps what it returned."""

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.layer(x)
        return hidden * table(4)


class Telling(Base):
    """Counts, logs, and tells the session what it computed, whenever it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.log = 0, list[int]()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.log.append(self.calls)
        hidden: Tensor = self.layer(x)
        if x.sum() > -1e9:
            hidden = hidden * 2
        samba.session.add_aux_tensor(hidden.sum(), "of the layer")
        return hidden


class Leaking(Base):
    """Puts what it computes wherever a program could."""

    def __init__(self) -> None:
        super().__init__()
        self.deep: dict[str, Any] = {"a": {"b": [1]}}
        self.helper, self.last = Tables(), None

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.layer(x)
        self.last = hidden
        self.deep["a"]["h"] = (hidden,)
        self.deep["a"]["b"].append(hidden)
        self.helper.cosines = hidden
        self.layer.seen = hidden
        type(self).shared = hidden
        KEPT.append(hidden)
        NAMED["hidden"] = hidden
        global LAST
        LAST = hidden
        return hidden


LAST: Any = "before"
MODULES: list[Callable[[], nn.Module]] = [Biased, Rotary, Cached, Telling, Leaking]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    SESSION.reset()
    table.cache_clear()
    yield
    SESSION.reset()
    KEPT.clear()
    NAMED.pop("hidden", None)


def traced(module: nn.Module) -> Iterator[str]:
    """Yield where tensors without content are: in the module, its helpers, classes and globals."""
    pending: list[tuple[str, Any]] = [("module", module)]
    for kind in {type(inner) for inner in module.modules()}:
        pending += [(kind.__name__, dict(vars(kind))), ("file", vars(sys.modules[kind.__module__]))]
    seen: set[int] = set()
    while pending:
        place, value = pending.pop()
        if isinstance(value, FakeTensor | FunctionalTensor):
            yield place
        if id(value) in seen or isinstance(value, Tensor | type):
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            pending += [(f"{place}[{key!r}]", item) for key, item in list(value.items())]
        elif isinstance(value, list | tuple | set):
            pending += [(f"{place}[...]", item) for item in value]
        elif isinstance(value, nn.Module | Tables):
            pending.append((place, vars(value)))
    if isinstance(table(4), FakeTensor):
        yield "the cache of a function"


@pytest.mark.filterwarnings("ignore::samba_onnx.errors.BranchWarning")
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("make", MODULES)
def test_nothing_traced_is_left(
    tmp_path: Path, make: Callable[[], nn.Module], trains: bool
) -> None:
    module = make().train(trains)
    twin = copy.deepcopy(module)
    samba.from_torch_model_(module)
    optimizer = samba.optim.SGD(module.parameters(), lr=0.1) if trains else None
    inputs = (torch.randn(3, 4),)
    options: dict[str, Any] = {"loss_indices": [0]} if trains else {}
    path = SESSION.compile(module, inputs, optimizer, output=tmp_path / "m.pef", **options)
    assert list(traced(module)) == []
    outputs = samba.utils.trace_graph(module, inputs, optimizer, pef=path)
    assert list(traced(module)) == []
    (result,) = SESSION.run(None, outputs)
    torch.testing.assert_close(samba.to_torch(result), twin(*inputs).detach())


@pytest.mark.filterwarnings("ignore::samba_onnx.errors.BranchWarning")
def test_side_effects_are_taken_back(tmp_path: Path) -> None:
    module = Telling().eval()
    samba.from_torch_model_(module)
    SESSION.compile(module, (torch.randn(3, 4),), output=tmp_path / "m.pef")
    assert (module.calls, module.log) == (0, [])
    assert SESSION.is_valid_aux_tensor_name("of the layer")
    module(torch.randn(3, 4))
    assert (module.calls, module.log) == (1, [1])
    assert not SESSION.is_valid_aux_tensor_name("of the layer")


def test_what_modules_hold_is_put_back(tmp_path: Path) -> None:
    module = Leaking().eval()
    samba.from_torch_model_(module)
    held = module.deep["a"]["b"]
    SESSION.compile(module, (torch.randn(3, 4),), output=tmp_path / "m.pef")
    assert module.deep == {"a": {"b": [1]}}
    assert module.deep["a"]["b"] is held
    assert module.helper.cosines is None
    assert module.last is None
    assert not hasattr(module.layer, "seen")
    assert NAMED["other"] == "kept"


def test_a_tensor_without_content_that_a_module_holds_is_left_alone(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 4))
    with FakeTensorMode():
        module.example = torch.zeros(3, 4)
    held = module.example
    SESSION.compile(module, (torch.randn(3, 4),), output=tmp_path / "m.pef", inference=True)
    assert module.example is held


def test_what_others_write_meanwhile_stays(tmp_path: Path) -> None:
    class Busy(Base):
        def forward(self, x: Tensor) -> Tensor:
            KEPT.append("of another thread")  # globals belong to everybody
            KEPT.append(x)
            return self.layer(x)

    SESSION.compile(Busy().eval(), (torch.randn(3, 4),), output=tmp_path / "m.pef")
    assert "of another thread" in KEPT
    assert not any(isinstance(value, FakeTensor) for value in KEPT)


def test_caches_that_were_frozen_are_found_after_each_freeze(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = functools.cache(lambda: traced), functools.cache(lambda: traced)
    traced = FakeTensorMode().from_tensor(torch.ones(2))
    for name, function in (("one", one), ("two", two)):
        monkeypatch.setattr(sys.modules[__name__], name, function, raising=False)
        gc.freeze()
        for _ in range(2):
            one(), two()
            forget_traced()
            assert function.cache_info().currsize == 0
    assert one.cache_info().currsize == 0


def test_caches_that_were_filled_before(tmp_path: Path) -> None:
    module, inputs = Cached().eval(), (torch.randn(3, 4),)
    samba.from_torch_model_(module)
    path = SESSION.compile(module, inputs, output=tmp_path / "m.pef")
    module(*inputs)  # the function has a real table from now on
    outputs = samba.utils.trace_graph(module, inputs, pef=path)
    assert SESSION.run(None, outputs)


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("make", [Biased, Rotary])
def test_a_cache_that_is_filled_after_compiling_makes_another_model(
    tmp_path: Path, make: Callable[[], nn.Module], converted: bool
) -> None:
    """What the module computed when it was compiled is a constant of it from then on."""
    module, inputs = make().eval(), (torch.randn(3, 4),)
    if converted:
        samba.from_torch_model_(module)
    path = SESSION.compile(module, inputs, output=tmp_path / "m.pef")
    module(*inputs)
    with pytest.raises(GraphMismatchError, match="or compile it again") as caught:
        samba.utils.trace_graph(module, inputs, pef=path)
    assert "\n" not in str(caught.value)
    samba.utils.trace_graph(
        module, inputs, pef=SESSION.compile(module, inputs, output=tmp_path / "m.pef")
    )
