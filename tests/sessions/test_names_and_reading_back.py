"""Every value has a name of its own, whatever the module, and a PEF can be read before it appears."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import onnx.parser
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import samba_onnx as samba
from samba_onnx.compiling.torch.porting import load_torch_model, port
from samba_onnx.errors import InternalError, ModelError, SambaError, UsageError
from samba_onnx.graph import FwdGraph
from samba_onnx.passes.planning import joining
from samba_onnx.pef import load_pef
from samba_onnx.sessions import SESSION

BATCH, WIDTH = 3, 4
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def run_step(
    model: nn.Module, inputs: Any, folder: Path, losses: list[int] | None = None, **options: Any
) -> None:
    """Compile, run a step of SGD, and compare outputs and parameters with torch."""
    twin = copy.deepcopy(model)
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    options |= {"loss_indices": losses}
    path = SESSION.compile(model, inputs, optimizer, output=folder / "m.pef", **options)
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=path, loss_indices=losses)
    results = [samba.to_torch(result) for result in SESSION.run(None, outputs)]
    args = inputs if isinstance(inputs, tuple) else tuple(inputs.values())
    expected = leaves(twin(*map(samba.to_torch, args)))
    for result, tensor in zip(results, expected, strict=True):
        torch.testing.assert_close(result, tensor.detach(), **CLOSE)
    torch.stack([expected[index].sum() for index in losses or [0]]).sum().backward()
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    known = SESSION.tensor_dict["weights"]
    for own, parameter in zip(model.parameters(), twin.parameters(), strict=True):
        assert isinstance(own, samba.SambaTensor)
        actual = own.sn_data if own.sn_name in known else samba.to_torch(own)
        torch.testing.assert_close(actual, parameter.detach(), **CLOSE)


def leaves(outputs: Any) -> list[Tensor]:
    if isinstance(outputs, Tensor):
        return [outputs]
    if isinstance(outputs, dict):
        return [leaf for value in outputs.values() for leaf in leaves(value)]
    if isinstance(outputs, list | tuple):
        return [leaf for value in outputs for leaf in leaves(value)]
    return leaves(vars(outputs)) if isinstance(outputs, Fields) else []


class Base(nn.Module):
    """Two layers and a loss, for modules that differ in what they do with it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)


def batch() -> dict[str, samba.SambaTensor]:
    torch.manual_seed(1)
    return {
        "x": samba.from_torch_tensor(torch.randn(BATCH, WIDTH), name="x"),
        "y": samba.from_torch_tensor(torch.tensor([0, 2, 1]), name="y"),
    }


# --- Random graphs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One value of a random graph: an operator on earlier values."""

    kind: str
    first: int
    second: int


KINDS: dict[str, Callable[[Tensor, Tensor, nn.Linear], Tensor]] = {
    "tanh": lambda a, b, layer: torch.tanh(a),
    "residual": lambda a, b, layer: a + torch.tanh(a),
    "add": lambda a, b, layer: a + b,
    "multiply": lambda a, b, layer: a * torch.sigmoid(b),
    "layer": lambda a, b, layer: layer(a),
    "view": lambda a, b, layer: a.t().reshape(a.shape) + b,
    "itself": lambda a, b, layer: a,
}

STEPS = st.lists(
    st.builds(Step, st.sampled_from(sorted(KINDS)), st.integers(0, 9), st.integers(0, 9)),
    min_size=1,
    max_size=7,
)


class Random(nn.Module):
    """Values made of values, some of which are outputs, maybe twice, and some of which are losses."""

    def __init__(self, steps: list[Step], outputs: list[int], losses: list[int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.tied = self.layers[0]
        self.steps, self.outputs, self.losses = steps, outputs, losses

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        values = [self.tied(x)]
        for number, step in enumerate(self.steps):
            one, other = values[step.first % len(values)], values[step.second % len(values)]
            values.append(KINDS[step.kind](one, other, self.layers[number % 2]))
        chosen = [values[index % len(values)] for index in self.outputs]
        terms = [values[index % len(values)] for index in self.losses]
        loss = torch.stack([term.square().mean() for term in [values[-1], *terms]]).sum()
        return (loss, *chosen)


def random_graph(
    folder: Path, steps: list[Step], outputs: list[int], losses: list[int], accumulates: bool
) -> None:
    SESSION.reset()
    torch.manual_seed(1)
    x = samba.from_torch_tensor(torch.randn(BATCH, WIDTH), name="x")
    module = Random(steps, outputs, losses)
    run_step(module, (x,), folder, [0], gradient_accumulation=accumulates)
    with load_pef(folder / "m.pef") as pef:
        names = [symbol.name for symbol in pef.manifest.symbols]
        written = [n for stage in pef.manifest.stages().values() for n in stage.outputs]
    assert len(names) == len(set(names))
    assert len(written) == len(set(written)), "two stages write values of one name"


INDICES = st.lists(st.integers(0, 9), max_size=3)
FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
PHASES = [Phase.explicit, Phase.generate]
"""Without shrinking: graphs are small, and every try compiles."""


@settings(
    max_examples=4, deadline=None, phases=PHASES, derandomize=True, suppress_health_check=FIXTURES
)
@given(STEPS, INDICES, INDICES, st.booleans())
def test_random_graphs(
    tmp_path: Path, steps: list[Step], outputs: list[int], losses: list[int], accumulates: bool
) -> None:
    random_graph(tmp_path, steps, outputs, losses, accumulates)


@pytest.mark.exhaustive
@settings(max_examples=75, deadline=None, phases=PHASES, suppress_health_check=FIXTURES)
@given(STEPS, INDICES, INDICES, st.booleans())
def test_many_random_graphs(
    tmp_path: Path, steps: list[Step], outputs: list[int], losses: list[int], accumulates: bool
) -> None:
    random_graph(tmp_path, steps, outputs, losses, accumulates)


class Recomputed(Base):
    """The sum is an output of the forward, and once more a value inside the backward."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.layer(x)
        q = h + torch.tanh(h)
        return functional.cross_entropy(self.head(q), y) + q.pow(2).mean()


@pytest.mark.parametrize("accumulates", [False, True])
def test_value_that_the_backward_computes_again(tmp_path: Path, accumulates: bool) -> None:
    run_step(Recomputed(), batch(), tmp_path, gradient_accumulation=accumulates)


# --- Names that users choose -----------------------------------------------------------------------


class TwoPaths(nn.Module):
    """Two parameters whose paths, joined by two underscores, are one text."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.a__b = nn.Module(), nn.Module()
        self.a.b__c, self.a__b.c = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.a.b__c + self.a__b.c).square().mean()


class LikeParameter(nn.Module):
    """An input that is called like the parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(4))

    def forward(self, likeparameter__w: Tensor) -> Tensor:
        return (likeparameter__w * self.w).square().mean()


class LikeGradient(nn.Module):
    """A parameter that is called like the gradient of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.w__grad = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.w + self.w__grad).square().mean()


class LikeUpdate(nn.Module):
    """A buffer that is called like the new value of another one."""

    b: Tensor
    b__updated: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(4))
        self.register_buffer("b", torch.zeros(()))
        self.register_buffer("b__updated", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.b.add_(1)
        return (x * self.w).square().mean() + self.b__updated


class LikeState(nn.Module):
    """A parameter that is called like the momentum of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(4))
        self.w__momentum_buffer = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.w + self.w__momentum_buffer).square().mean()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (TwoPaths, r"parameter 'a.b__c' and parameter 'a__b.c' are both called"),
        (LikeParameter, r"parameter 'w' and input 'likeparameter__w' are both called"),
        (LikeGradient, r"parameter 'w__grad' and the gradient of parameter 'w' are both called"),
        (LikeUpdate, r"buffer 'b__updated' and the new value of buffer 'b' are both called"),
        (
            LikeState,
            r"parameter '.*' and state 'momentum_buffer' of parameter '.*' are both called",
        ),
    ],
)
def test_names_that_two_values_would_have(
    tmp_path: Path, make: Callable[[], nn.Module], message: str
) -> None:
    model = make()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(UsageError, match=message) as caught:
        SESSION.compile(model, (torch.randn(2, 4),), optimizer, output=tmp_path / "m.pef")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


class LikeRate(nn.Module):
    """An input that is called like the learning rate on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(4))

    def forward(self, optimizer0__group0__lr: Tensor) -> Tensor:
        return (optimizer0__group0__lr * self.w).square().mean()


def test_input_like_an_argin(tmp_path: Path) -> None:
    model = LikeRate()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UsageError, match="'optimizer0__group0__lr', which is the name of a value"):
        SESSION.compile(model, (torch.randn(2, 4),), optimizer, output=tmp_path / "m.pef")


@pytest.mark.parametrize(("make", "works"), [(LikeGradient, True), (LikeParameter, False)])
def test_names_clash_only_where_both_values_are_there(
    tmp_path: Path, make: Callable[[], nn.Module], works: bool
) -> None:
    model = make().eval()  # no gradients, no states
    if works:
        SESSION.compile(model, (torch.randn(2, 4),), output=tmp_path / "m.pef")
        return
    with pytest.raises(UsageError, match="are both called"):
        SESSION.compile(model, (torch.randn(2, 4),), output=tmp_path / "m.pef")


class Pair(nn.Module):
    """Two inputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return (self.layer(a) * b).square().mean(), self.layer(a) + b


@pytest.mark.parametrize("named", [False, True])
def test_one_tensor_for_two_arguments(tmp_path: Path, named: bool) -> None:
    plain = torch.randn(BATCH, WIDTH)
    tensor = samba.from_torch_tensor(plain, name="t") if named else plain
    run_step(Pair(), (tensor, tensor), tmp_path, [0])
    with load_pef(tmp_path / "m.pef") as pef:
        assert list(pef.manifest.graphs[0].inputs)[: 2 - named] == (["t"] if named else ["a", "b"])


def test_one_tensor_for_two_arguments_of_an_inference(tmp_path: Path) -> None:
    model, tensor = Pair().eval(), samba.from_torch_tensor(torch.randn(2, WIDTH), name="t")
    path = SESSION.compile(model, (tensor, tensor), output=tmp_path / "m.pef")
    outputs = samba.utils.trace_graph(model, (tensor, tensor), pef=path)
    other = torch.randn(2, WIDTH)
    results = SESSION.run([samba.from_torch_tensor(other, name="t")], outputs)
    for result, expected in zip(results, model(other, other), strict=True):
        torch.testing.assert_close(samba.to_torch(result), samba.to_torch(expected), **CLOSE)


def test_two_tensors_of_one_name(tmp_path: Path) -> None:
    one, other = (samba.from_torch_tensor(torch.randn(2, WIDTH), name="t") for _ in range(2))
    with pytest.raises(UsageError, match="two inputs are called 't'"):
        SESSION.compile(Pair(), (one, other), output=tmp_path / "m.pef")


# --- What modules return ---------------------------------------------------------------------------


@dataclass
class Fields:
    """A dataclass that torch does not know."""

    loss: Tensor
    logits: Tensor | None = None
    more: Any = None


class Named(NamedTuple):
    """A named tuple."""

    loss: Tensor
    logits: Tensor


SHAPES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "dict": lambda loss, logits: {"loss": loss, "logits": logits},
    "ordered": lambda loss, logits: collections.OrderedDict(loss=loss, logits=logits),
    "named tuple": Named,
    "dataclass": Fields,
    "nested": lambda loss, logits: Fields(loss, None, [logits, {"again": Fields(logits)}]),
    "others": lambda loss, logits: [loss, "text", 3, None, logits, torch.float32],
    "twice": lambda loss, logits: (loss, logits, logits, loss),
}


class Returning(Base):
    """Returns a loss and scores in some container."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor, y: Tensor) -> Any:
        logits = self.head(self.layer(x))
        return SHAPES[self.shape](functional.cross_entropy(logits, y), logits)


@pytest.mark.parametrize("shape", SHAPES)
def test_containers_of_outputs(tmp_path: Path, shape: str) -> None:
    run_step(Returning(shape), batch(), tmp_path, [0])


class Opaque:
    """An object that may hold tensors."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def test_objects_that_cannot_be_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "object", lambda loss, logits: (loss, Opaque(logits)))
    with pytest.raises(ModelError, match="Returning returns an object of class Opaque: return"):
        SESSION.compile(Returning("object"), batch(), output=tmp_path / "m.pef")


class Nothing(nn.Module):
    """Returns nothing."""

    def forward(self, x: Any) -> None:
        return None


def test_nothing_is_returned(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="returns no tensor and writes no buffer"):
        SESSION.compile(Nothing(), (torch.randn(2),), output=tmp_path / "m.pef")


def test_dataclasses_are_no_inputs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an input of Nothing is a dataclass, Fields: give"):
        SESSION.compile(Nothing(), (Fields(torch.randn(2)),), output=tmp_path / "m.pef")


class Everything(Base):
    """Returns inputs, parameters, buffers and views of them beside its loss."""

    buffer: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("buffer", torch.ones(WIDTH))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        h = self.layer(x)
        views = x.view(-1), self.layer.weight.t(), h.detach()
        return (h.square().mean(), h, h, x, x, self.layer.weight, self.buffer, *views)


def test_outputs_that_are_inputs_and_parameters(tmp_path: Path) -> None:
    run_step(Everything(), (batch()["x"],), tmp_path, [0])


# --- Reading back ----------------------------------------------------------------------------------


def keep_names(_self: object, node: Any, kept: object) -> None:
    """Stand in for the renaming of values, so that two of them get one name."""


def by_session(folder: Path) -> None:
    model = Recomputed()
    samba.from_torch_model_(model)
    SESSION.compile(model, batch(), samba.optim.SGD(model.parameters()), output=folder / "m.pef")


def by_graphs(folder: Path) -> None:
    model, tensor = Pair().eval(), samba.from_torch_tensor(torch.randn(2, WIDTH), name="t")
    samba.from_torch_model_(model)
    outputs = samba.utils.trace_multigraph(model, (tensor, tensor))
    SESSION.add_graph(FwdGraph((tensor, tensor), outputs, name="g"))
    SESSION.compile_multigraph(name="graphs", output=folder / "m.pef")


def by_conversion(folder: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    samba.convert(onnx.parser.parse_model(text), folder / "m.pef", sample=False, trial=False)


def training() -> tuple[nn.Module, dict[str, Tensor], torch.optim.Optimizer]:
    model = Recomputed()
    plain = {name: samba.to_torch(tensor) for name, tensor in batch().items()}
    return model, plain, torch.optim.SGD(model.parameters(), lr=0.1)


def by_training(folder: Path) -> None:
    port(load_torch_model(f"{__name__}:training", train=True), folder / "m.pef")


@pytest.mark.parametrize("write", [by_session, by_graphs, by_conversion, by_training])
def test_what_cannot_be_read_back_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None]
) -> None:
    from samba_onnx.compiling import packaging

    original = packaging.emit_stage

    def broken(*args: Any) -> onnx.ModelProto:
        model = original(*args)
        model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 7
        return model

    monkeypatch.setattr(packaging, "emit_stage", broken)
    (tmp_path / "m.pef").write_bytes(b"before")
    with pytest.raises(InternalError, match=r"cannot be read back: stage .* has shape"):
        write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["m.pef"]
    assert (tmp_path / "m.pef").read_bytes() == b"before"


def test_names_that_clash_do_not_get_into_a_pef(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining._Joiner, "_rename", keep_names)
    with pytest.raises(SambaError):
        by_session(tmp_path)
    assert list(tmp_path.iterdir()) == []
