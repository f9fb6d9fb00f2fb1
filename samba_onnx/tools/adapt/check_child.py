"""Programs under observation, in a child process: what each step's loss was, and the weights after the last.

Nothing of a program is changed for it: functions of torch and of the session that it calls are watched.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import random
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from samba_onnx.tools.adapt.observation import EnoughSteps, ModelCalls, Observation

_LONGEST_OUTPUT = 100_000


def observe_original(
    program: str,
    arguments: Sequence[str],
    steps: int,
    seed: int,
    whole_batches: Sequence[tuple[str, int, int]],
    weights: str,
    folder: str,
    infers: bool,
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
        infers: Whether it trains nothing: its runs are counted then, and their results kept.

    Returns:
        Losses, dropouts and what the program printed.
    """
    # Backward says what the loss is, whatever the program calls it.
    watch = _TorchWatch(Observation(steps))
    seen = watch.seen
    _leave_out_last(whole_batches)
    with _no_dropout(seen), _plain_loaders(), _replaced(torch.Tensor, "backward", watch.backward()):
        hook = register_optimizer_step_post_hook(watch.stepped)
        calls = ModelCalls(seen) if infers else contextlib.nullcontext()
        try:
            with calls:
                printed = _run(program, arguments, seed, folder)
        finally:
            hook.remove()
    if not infers and not seen.tensors:
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
    infers: bool,
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
        infers: Whether it trains nothing.

    Returns:
        Losses, dropouts and what the program printed.
    """
    from samba_onnx.sambaflow.finder import install

    install()
    import sambaflow.samba as samba
    import sambaflow.samba.utils as utils

    watch = _SessionWatch(samba, utils, Observation(steps), infers)
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
    if not infers and not watch.seen.tensors:
        watch.collect()
    save_file(watch.seen.tensors, weights)
    return _answer(watch.seen, printed)


class _SessionWatch:
    """Stands for two calls of SambaFlow's, and hands them on."""

    def __init__(self, samba: Any, utils: Any, seen: Observation, infers: bool) -> None:
        self.seen = seen
        self._infers = infers
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
        if self._infers:
            self.seen.keep([self._samba.to_torch(output) for output in outputs])
            return outputs
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
        except EnoughSteps:
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
    state = importlib.import_module("accelerate.state")
    with _replaced(
        accelerator,
        "prepare_data_loader",
        lambda loader, *_, **__: _ending(loader, state.GradientState),
    ):
        yield


def _ending(loader: Any, state: Callable[[], Any]) -> Any:
    """Return a loader that tells accelerate when it is at its last batch, at which sums of gradients end."""
    if not isinstance(loader, DataLoader):
        return loader
    plain = type(loader)

    def iterate(self: Any) -> Iterator[Any]:
        known = state()
        self.end_of_dataloader = False
        known._add_dataloader(self)
        try:
            for place, batch in enumerate(plain.__iter__(self)):
                self.end_of_dataloader = place == len(self) - 1
                yield batch
        finally:
            known._remove_dataloader(self)

    loader.__class__ = type(plain.__name__, (plain,), {"__iter__": iterate, "remainder": -1})
    return loader


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
