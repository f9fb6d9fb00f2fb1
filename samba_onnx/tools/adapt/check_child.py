"""Programs under observation, in a child process: what each step's loss was, and the weights after the last.

Nothing of a program is changed for it: functions of torch and of the session that it calls are watched.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import random
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

_LONGEST_OUTPUT = 100_000
_NOISE = 1e-5
"""Gradients that are smaller than this share of the largest are what rounding leaves of zero, as those of
a bias before a normalisation; Adam makes steps of full length of them, in any direction."""


class _EnoughSteps(BaseException):
    """Ends a program after the steps that are compared; no handler of the program's own takes it."""


@dataclass
class Observation:
    """What was seen of one program."""

    steps: int
    """Steps after which the program is ended."""
    losses: list[float] = field(default_factory=list)
    done: int = 0
    dropouts: int = 0
    """Dropouts whose rate was set to 0."""
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    largest: dict[int, torch.Tensor] = field(default_factory=dict)
    """The largest gradient of each number that was seen, by the id of its parameter."""
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """Trained parameters in the order of the optimizers, then buffers; and which numbers say nothing."""
    names: list[str] = field(default_factory=list)
    """What the program calls these tensors."""

    def end_if_done(self, collect: Callable[[], None]) -> None:
        """End the program if all steps are done.

        Args:
            collect: Called before the end, while the program's objects still live.

        Raises:
            _EnoughSteps: They are.
        """
        if self.done >= self.steps:
            collect()
            raise _EnoughSteps

    def note_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Note how large gradients are in a step."""
        # On the host and of the original alone: the device keeps its gradients to itself.
        for parameter in _parameters([optimizer]):
            if parameter.grad is not None:
                size = parameter.grad.detach().abs()
                known = self.largest.get(id(parameter))
                self.largest[id(parameter)] = size if known is None else torch.maximum(size, known)

    def collect(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Take what was trained, and the buffers beside it.

        Args:
            optimizers: All that the program has, in the order of their steps.
        """
        trained = _parameters(optimizers)
        root = _smallest_with({id(parameter) for parameter in trained})
        names = {id(one): name for name, one in root.named_parameters()} if root is not None else {}
        buffers = dict(root.named_buffers()) if root is not None else {}
        self.names = [names.get(id(one), f"parameter {place}") for place, one in enumerate(trained)]
        self.names += list(buffers)
        most = max((float(one.max()) for one in self.largest.values()), default=0.0)
        for place, one in enumerate((*trained, *buffers.values())):
            self.tensors[f"{place}"] = _plain(one)
            size = self.largest.get(id(one))
            if size is not None:
                self.tensors[f"noise {place}"] = (size < _NOISE * most).float().contiguous()


def observe_original(
    program: str,
    arguments: Sequence[str],
    steps: int,
    seed: int,
    whole_batches: Sequence[tuple[str, int, int]],
    weights: str,
    folder: str,
) -> dict[str, Any]:
    """Run a plain program for some steps.

    Args:
        program: The program.
        arguments: Its command line.
        steps: After how many steps of the optimizer it is ended.
        seed: What all generators begin with.
        whole_batches: File, line and column of the calls that make loaders, whose smaller last batch is
            left out as the adapted program does.
        weights: File for weights and buffers.
        folder: A folder that is searched for modules, too; empty for none.

    Returns:
        Losses, dropouts and what the program printed.
    """
    # Backward says what the loss is, whatever the program calls it.
    watch = _TorchWatch(Observation(steps))
    seen = watch.seen
    _leave_out_last(whole_batches)
    with _no_dropout(seen), _plain_loaders(), _replaced(torch.Tensor, "backward", watch.backward()):
        hook = register_optimizer_step_post_hook(watch.stepped)
        try:
            printed = _run(program, arguments, seed, folder)
        finally:
            hook.remove()
    if not seen.tensors:
        seen.collect(seen.optimizers)
    save_file(seen.tensors, weights)
    return _answer(seen, printed)


class _TorchWatch:
    """Notes what a plain program asks of torch."""

    def __init__(self, seen: Observation) -> None:
        self.seen = seen
        self._backward = torch.Tensor.backward

    def stepped(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Count a step of the optimizers, after it was made."""
        seen = self.seen
        if optimizer not in seen.optimizers:
            seen.optimizers.append(optimizer)
        seen.note_gradients(optimizer)
        # Several optimizers make one step together: the first counts it, the last ends it.
        seen.done += optimizer is seen.optimizers[0]
        if optimizer is seen.optimizers[-1]:
            seen.end_if_done(lambda: seen.collect(seen.optimizers))

    def backward(self) -> Callable[..., None]:
        """Return what stands for ``Tensor.backward``: a function, so that it becomes a method."""
        seen, backward = self.seen, self._backward

        def differentiated(loss: torch.Tensor, *args: Any, **options: Any) -> None:
            seen.losses.append(float(loss.detach().sum()))
            backward(loss, *args, **options)  # type: ignore[no-untyped-call]  # torch's own is not typed

        return differentiated


def observe_adapted(
    program: str,
    arguments: Sequence[str],
    steps: int,
    seed: int,
    output: str,
    weights: str,
    folder: str,
) -> dict[str, Any]:
    """Compile an adapted program, and run it for some steps.

    Args:
        program: The program.
        arguments: Its own command line, without the command.
        steps: After how many steps it is ended.
        seed: What all generators begin with.
        output: Where the PEF belongs.
        weights: File for weights and buffers.
        folder: A folder that is searched for modules, too; empty for none.

    Returns:
        Losses, dropouts and what the program printed.
    """
    from samba_onnx.sambaflow.finder import install

    install()
    import sambaflow.samba as samba
    import sambaflow.samba.utils as utils

    watch = _SessionWatch(samba, utils, Observation(steps))
    with _no_dropout(watch.seen):
        compiled = [*("compile", "--pef-name", "checked", "--output-folder", output), *arguments]
        _run(program, compiled, seed, folder)
        with (
            _replaced(samba.session, "run", watch.run),
            _replaced(utils, "trace_graph", watch.trace_graph),
        ):
            pef = str(Path(output) / "checked" / "checked.pef")
            printed = _run(program, ["run", "--pef", pef, *arguments], seed, folder)
    # A program that made fewer steps than were asked for ended by itself.
    if not watch.seen.tensors:
        watch.collect()
    save_file(watch.seen.tensors, weights)
    return _answer(watch.seen, printed)


class _SessionWatch:
    """Stands for two calls of SambaFlow's, and hands them on."""

    def __init__(self, samba: Any, utils: Any, seen: Observation) -> None:
        self.seen = seen
        self._samba = samba
        self._run, self._trace = samba.session.run, utils.trace_graph
        self._model: Any = None
        self._optimizers: list[Any] = []

    def trace_graph(
        self, model: Any, inputs: Any, optim: Any = None, *args: Any, **options: Any
    ) -> Any:
        """Trace a graph, and note model and optimizers."""
        self._model = model
        self._optimizers = list(optim) if isinstance(optim, list | tuple) else [optim]
        return self._trace(model, inputs, optim, *args, **options)

    def run(self, *args: Any, **options: Any) -> Any:
        """Run the graph, and note the loss, which is its first output."""
        sections = [one.upper() for one in options.get("section_types", [])]
        outputs = self._run(*args, **options)
        if outputs and (not sections or "BCKWD" in sections):
            self.seen.losses.append(float(self._samba.to_torch(outputs[0]).detach().sum()))
        if not sections or "OPT" in sections:
            self.seen.done += 1
            self.seen.end_if_done(self.collect)
        return outputs

    def collect(self) -> None:
        """Copy weights to the host, and take them."""
        self._samba.session.to_cpu(self._model, self._optimizers)
        self.seen.collect(self._optimizers)


def _answer(seen: Observation, printed: str) -> dict[str, Any]:
    return {
        "losses": seen.losses,
        "steps": seen.done,
        "dropouts": seen.dropouts,
        "names": seen.names,
        "printed": printed[:_LONGEST_OUTPUT],
    }


def _run(program: str, arguments: Sequence[str], seed: int, folder: str) -> str:
    """Run a program as ``python program.py`` does, and return what it printed."""
    # Modules of the program are found beside it, as by Python itself; each run imports them anew.
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    sys.argv = [program, *arguments]
    before = set(sys.modules)
    sys.path[:0] = [str(Path(program).parent), *([folder] if folder else [])]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            runpy.run_path(program, run_name="__main__")
        except _EnoughSteps:
            pass
        except SystemExit as end:
            if end.code not in (None, 0):
                raise RuntimeError(f"the program ended with status {end.code}") from None
    for name in set(sys.modules) - before:
        place = getattr(sys.modules[name], "__file__", None) or ""
        if place.startswith(str(Path(program).parent)) or (folder and place.startswith(folder)):
            del sys.modules[name]
    return output.getvalue()


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def _no_dropout(seen: Observation) -> Iterator[None]:
    """Set the rates of all dropouts to 0: the masks of two machines are not the same numbers."""
    # Modules when they are made, functions when they are called: attention asks its own attribute.
    functional = nn.functional
    with contextlib.ExitStack() as stack:
        for kind, name in _RATED:
            stack.enter_context(_replaced(kind, "__init__", _without_rate(kind, name, seen)))
        for name in ("dropout", "alpha_dropout", "dropout1d", "dropout2d", "dropout3d"):
            stack.enter_context(_replaced(functional, name, _identity(seen, name)))
        yield


_RATED = (
    (nn.modules.dropout._DropoutNd, "p"),
    (nn.MultiheadAttention, "dropout"),
    (nn.modules.rnn.RNNBase, "dropout"),
)
"""Modules with a rate of dropout, and what it is called."""


def _without_rate(kind: type[nn.Module], name: str, seen: Observation) -> Callable[..., None]:
    made = kind.__init__

    def init(self: nn.Module, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        if getattr(self, name):
            seen.dropouts += 1
            setattr(self, name, 0.0)

    return init


def _identity(seen: Observation, name: str) -> Callable[..., torch.Tensor]:
    function: Callable[..., torch.Tensor] = getattr(nn.functional, name)

    def dropped(input: torch.Tensor, p: float = 0.5, *args: Any, **options: Any) -> torch.Tensor:
        if p:
            seen.dropouts += 1
        return function(input, 0.0, *args, **options)

    return dropped


@contextlib.contextmanager
def _plain_loaders() -> Iterator[None]:
    """Let accelerate leave loaders alone: it shuffles by a generator of its own, in another order."""
    if find_spec("accelerate") is None:
        yield
        return
    accelerator = importlib.import_module("accelerate.accelerator")
    if not hasattr(accelerator, "prepare_data_loader"):
        yield
        return
    with _replaced(accelerator, "prepare_data_loader", lambda loader, *_, **__: loader):
        yield


def _leave_out_last(places: Sequence[tuple[str, int, int]]) -> None:
    """Let loaders that are made at some places of a program leave out a smaller last batch."""
    # By place: other loaders of the program, for validation, stay as they are.
    made = DataLoader.__init__
    wanted = {tuple(place) for place in places}

    def init(self: DataLoader[Any], *args: Any, **options: Any) -> None:
        caller = sys._getframe(1)
        # Two bytes for an instruction: the place of the call that is being executed.
        positions = list(caller.f_code.co_positions())[caller.f_lasti // 2]
        if (caller.f_code.co_filename, positions[0], positions[2]) in wanted:
            options["drop_last"] = True
        made(self, *args, **options)

    DataLoader.__init__ = init  # type: ignore[method-assign]


def _parameters(optimizers: Sequence[torch.optim.Optimizer]) -> list[torch.Tensor]:
    return [
        one
        for optimizer in optimizers
        for group in optimizer.param_groups
        for one in group["params"]
    ]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    # A copy by value: parameters of SambaFlow are tensors of another class.
    data = (
        tensor.detach().as_subclass(torch.Tensor)
        if type(tensor) is nn.Parameter
        else tensor.detach()
    )
    return torch.as_tensor(np.array(data.float().tolist(), dtype=np.float32)).reshape(
        tuple(tensor.shape)
    )


def _smallest_with(wanted: set[int]) -> nn.Module | None:
    """Return the module with the fewest parts that has all parameters."""
    # By type: isinstance asks objects of libraries for attributes, some of which warn.
    modules = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    found = [one for one in modules if wanted <= {id(parameter) for parameter in one.parameters()}]
    return min(found, key=lambda one: sum(1 for _ in one.modules()), default=None)
