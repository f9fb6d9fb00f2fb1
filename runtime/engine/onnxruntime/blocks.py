"""Executes arithmetic on large tensors block by block, so that what is in between stays in a cache.

Every block is a run of one small session on views of device memory, in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import onnx
import onnxruntime as ort

from samba_onnx.runtime.engine.lowerings.elementwise_blocks import same_models
from samba_onnx.runtime.engine.lowerings.pipeline import lower
from samba_onnx.runtime.engine.lowerings.stage_model import Component, StageModel
from samba_onnx.runtime.memory import DeviceMemory, DeviceTensor

BLOCK = 1 << 16
"""Elements: a run takes long against what starts it, and its vectors still fit into a cache."""
_WORTH_SHARING = 1 << 17
"""Elements: fewer are done before another thread wakes up."""

MakeSession = Callable[[StageModel], ort.InferenceSession]


@dataclass(frozen=True)
class BlockRun:
    """One block."""

    session: ort.InferenceSession
    """Uses one thread; many blocks share it."""
    binding: Any
    elements: int


@dataclass(frozen=True)
class Blocks:
    """All blocks of a step, ready to run in any order."""

    runs: tuple[BlockRun, ...]
    pool: ThreadPoolExecutor | None
    """Threads besides the calling one; None without any."""
    threads: int
    """How many the pool has."""

    def run(self) -> None:
        """Execute. Whatever onnxruntime raises passes through."""
        left = iter(self.runs)
        if self.pool is None:
            _run_all(left)
            return
        # One iterator for all: every next() takes a block that no other thread has.
        helpers = [self.pool.submit(_run_all, left) for _ in range(self.threads)]
        try:
            _run_all(left)
        finally:
            # After an error as well: no thread may write to device memory when the run is over.
            for helper in helpers:
                helper.result()


class BlockPool:
    """Threads for blocks, made when they are first needed."""

    def __init__(self, threads: int) -> None:
        """Note how many threads to use, the calling one included."""
        self._helpers = threads - 1
        self._pool: ThreadPoolExecutor | None = None

    def blocks(self, runs: Sequence[BlockRun]) -> Blocks:
        """Return blocks with threads, if they are worth it.

        Args:
            runs: The blocks of a step.
        """
        if self._helpers and sum(run.elements for run in runs) >= _WORTH_SHARING:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._helpers, thread_name_prefix="blocks")
            return Blocks(tuple(runs), self._pool, self._helpers)
        return Blocks(tuple(runs), None, 0)


def bind_blocks(
    components: Sequence[Component], memory: DeviceMemory, make_session: MakeSession
) -> list[BlockRun]:
    """Make sessions and bind them to all blocks of some components.

    Args:
        components: What may be executed block by block.
        memory: Where their inputs and outputs live.
        make_session: Makes a session of a lowered model, for one thread.

    Returns:
        All blocks.
    """
    runs: list[BlockRun] = []
    for content, alike in same_models(components).items():
        # Without memory: a block is no value of the device, so that what is there only for
        # values in device memory does not apply to it.
        stage = StageModel(onnx.load_model_from_string(content))
        lower(stage)
        session = make_session(stage)
        for component in alike:
            runs += _bindings(session, component, memory)
    return runs


def _bindings(
    session: ort.InferenceSession, component: Component, memory: DeviceMemory
) -> Iterator[BlockRun]:
    inputs = [value.name for value in component.model.graph.input]
    outputs = [value.name for value in component.model.graph.output]
    places = [
        _Place(memory.tensor(name), inside, name in component.scalars)
        for inside, name in zip(inputs, component.inputs, strict=True)
    ]
    results = [
        _Place(memory.tensor(name), inside, scalar=False)
        for inside, name in zip(outputs, component.outputs, strict=True)
    ]
    total = memory.tensor(component.outputs[0]).items.size
    for begin in range(0, total, BLOCK):
        length = min(BLOCK, total - begin)
        binding = session.io_binding()
        for place in places:
            binding.bind_input(place.name, "cpu", 0, *place.block(begin, length))
        for place in results:
            binding.bind_output(place.name, "cpu", 0, *place.block(begin, length))
        yield BlockRun(session, binding, length)


class _Place:
    """Where the blocks of one input or output lie."""

    def __init__(self, tensor: DeviceTensor, name: str, scalar: bool) -> None:
        self.name = name
        self._number = tensor.element.number
        self._address = tensor.address
        self._size = tensor.items.itemsize
        self._scalar = scalar

    def block(self, begin: int, length: int) -> tuple[int, tuple[int, ...], int]:
        """Return element type, shape and address of one block."""
        if self._scalar:
            return self._number, (), self._address
        return self._number, (length,), self._address + begin * self._size


def _run_all(left: Iterator[BlockRun]) -> None:
    for run in left:
        run.session.run_with_iobinding(run.binding)
